"""Carries a request to a node, and on to another where the first one declines or is lost.

Guarantees: a call ends with its answers or with one exception, never later than its deadline; a request that
may have been begun is sent once more at most, marked `attempt` 1, and only where that does no harm; who stops
listening sends a Cancel. Left out: what is asked (`session`) and how answers are put together (`gathering`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError, NotConnected
from bakemesh.bus.events import Event, Reconnected
from bakemesh.bus.verbs import Subscription
from bakemesh.inference.choosing import choose
from bakemesh.inference.errors import (
    Closed,
    InferenceError,
    ModelUnknown,
    NodeGone,
    NoNode,
    refused,
)
from bakemesh.inference.flights import Flight, expected
from bakemesh.inference.judging import Then, judge, pause_s
from bakemesh.inference.nodes import NOBODY, SETTLED_S, Nodes, load_of
from bakemesh.protocol import names, subjects
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.inference.answers import Answer, SynapseStatus, Token
from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.inference.requests import Cancel
from bakemesh.protocol.message import Message
from bakemesh.protocol.subjects import ANY_NODE, SYNAPSE_STATUS
from bakemesh.telemetry import OFF, TRACEPARENT, SpanKind, Telemetry

log = logging.getLogger(__name__)

LOOK_S = 1.0
LATE_S = 1.0  # a look that is so late shows that this process did not run: nothing was read either
AT_ONCE = 8  # requests of one call, in flight
A = TypeVar("A", bound=Answer)
Make = Callable[[int, int], Message]  # of the milliseconds that are left, and the attempt


@dataclass(slots=True)
class Job:
    """A request to carry. `tokens`: about how much work it is; `node`: the only node that is asked;
    `deadline`: by the loop's clock; `repeatable`: whether doing it twice does no harm; `traceparent`: of who
    asked the caller.
    """

    verb: type[Message]
    alias: str
    make: Make
    deadline: float
    tokens: float = 0.0
    bulk: bool = False
    node: str | None = None
    repeatable: bool = True
    traceparent: str | None = None
    carried_by: str = ""  # the node whose answers come


class Carrier:
    """Requests on their way, over one bus. `retry`: whether another node, or a later time, is tried where a
    request is declined; `patience_s`: how much later at most.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        retry: bool = True,
        patience_s: float | None = None,
        telemetry: Telemetry = OFF,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._bus, self._retry, self._telemetry, self._draw = bus, retry, telemetry, draw
        self._patience_s = math.inf if patience_s is None else patience_s
        self.nodes = Nodes()
        self._flights: set[Flight] = set()
        self._cancels: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._subscription: Subscription | None = None
        self._watch: asyncio.Task[None] | None = None
        self._unhook: Callable[[], None] = lambda: None
        self._began = float("inf")
        self._lost_at = float("-inf")  # when the last node was lost from sight, or stopped taking work
        self._closed: str | None = None

    async def start(self) -> None:
        """Listens to what nodes say of themselves. Raises AccessDenied, NotConnected, BusClosed."""
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._unhook = self._bus.on_event(self._on_event)
        pattern = subjects.pattern(self._bus.mesh, SYNAPSE_STATUS)
        self._subscription = await self._bus.subscribe(pattern, self._on_status)
        self._watch = asyncio.create_task(self._look())

    async def close(self, reason: str) -> None:
        """Ends every request with Closed; their nodes are told. Idempotent."""
        if self._closed is not None:
            return
        self._closed = reason
        self._unhook()
        for flight in list(self._flights):
            self._land(flight, cancel=not flight.ended, error=Closed(reason))
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._cancels:
            await asyncio.wait(set(self._cancels), timeout=1.0)
        if self._subscription is not None:
            with contextlib.suppress(BusError):
                await self._subscription.stop()

    @property
    def now(self) -> float:
        """The loop's clock."""
        return self._loop.time()

    @property
    def in_flight(self) -> int:
        """Requests whose last answer has not come."""
        return len(self._flights)

    # -- one request

    def carry(self, job: Job) -> AsyncGenerator[Answer, None]:
        """The answers of the node that does it, the last one last. Raises one InferenceError, or the bus's
        error. Close it (`contextlib.aclosing`) where it is left early.
        """
        return self._traced(job) if self._telemetry.on else self._carry(job, job.traceparent)

    async def _traced(self, job: Job) -> AsyncGenerator[Answer, None]:
        """As `carry`, with a span from the first try to the last answer."""
        verb = job.verb.TYPE.rpartition(".")[2]
        span = self._telemetry.span(
            f"ask {verb}", SpanKind.CLIENT, parent=job.traceparent, attributes={"model": job.alias}
        )
        problem: str | None = "left early"
        try:
            async with aclosing(self._carry(job, span.traceparent)) as answers:
                async for answer in answers:
                    yield answer
            problem = None
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise
        finally:
            span.note({"node": job.carried_by})
            span.end(problem)

    async def _carry(self, job: Job, traceparent: str | None) -> AsyncGenerator[Answer, None]:
        headers = None if traceparent is None else {TRACEPARENT: traceparent}
        declined: dict[str, InferenceError] = {}
        attempt = rounds = 0
        patient: float | None = None  # until when, from when all have declined
        while True:
            target = await self._target(job, declined)
            if target is None:
                if patient is None:
                    patient = min(job.deadline, self._loop.time() + self._patience_s)
                await self._pause(patient, declined, rounds)
                rounds += 1
                continue
            flight = await self._depart(job, target, attempt)
            begun = False
            try:
                await flight.send(headers)
                while True:
                    answer = await flight.next()
                    begun = begun or type(answer) is Token
                    job.carried_by = flight.node_id
                    yield answer
                    if flight.done:
                        return
            except NotConnected:  # nothing was sent; `_depart` waits for the link
                continue
            except InferenceError as error:
                then = judge(error, attempt=attempt, repeatable=job.repeatable, begun=begun)
                if then is Then.TELL:
                    raise
                if then is Then.REPEAT:
                    attempt = 1
                    log.info("%s of %s is repeated: %s", job.verb.TYPE, job.alias, error)
                elif self._elsewhere(job, target, error):
                    declined[target] = error
                elif target == ANY_NODE and isinstance(error, NodeGone):
                    raise NoNode(NOBODY) from None
                else:
                    raise
            finally:
                self._land(flight, cancel=not flight.ended or flight.lost)

    async def only(self, job: Job, kind: type[A]) -> A:
        """The one answer of this kind. Raises as `carry`, and AnswerBroken for another kind."""
        async with aclosing(self.carry(job)) as found:
            async for answer in found:
                return expected(answer, kind, job.carried_by)
        raise AssertionError("a request ends with its last answer")

    def _elsewhere(self, job: Job, target: str, error: InferenceError) -> bool:
        """Whether another node, or the same one later, may be tried."""
        if isinstance(error, NodeGone):
            self.nodes.unreachable(target)
            return job.node is None and (target != ANY_NODE or bool(self.nodes.candidates(job.alias)))
        return self._retry

    async def _target(self, job: Job, declined: dict[str, InferenceError]) -> str | None:
        """Where it goes next; None where all have declined. Raises NoNode, ModelUnknown."""
        while True:
            self._check_open()
            if job.node is not None:
                return None if job.node in declined else job.node
            now = self._loop.time()
            candidates = self.nodes.candidates(job.alias, declined)
            if candidates:
                if len(candidates) == 1:
                    return candidates[0].node_id
                loads = [load_of(node, job.alias, now, bulk=job.bulk) for node in candidates]
                return choose(loads, job.tokens, self._draw()).node_id
            if now < self._began + SETTLED_S and not declined:
                return ANY_NODE
            if any(error.transient for error in declined.values()):
                return None
            settles = max(self._began, self._lost_at) + SETTLED_S
            if now < min(settles, job.deadline):  # a node not heard of yet, or heard of again, may do it
                await self.news(min(settles, job.deadline))
                continue
            unknown, why = self.nodes.why_none(job.alias)
            if declined and not (unknown and all(type(each) is ModelUnknown for each in declined.values())):
                raise next(reversed(declined.values()))
            raise refused(Code.MODEL_UNKNOWN, why) if unknown else NoNode(why)

    async def _pause(self, until: float, declined: dict[str, InferenceError], rounds: int) -> None:
        """Waits as long as those who declined ask for. Raises what the last one said where that is too
        long.
        """
        last = next(reversed(declined.values()))
        pause = pause_s(declined.values(), rounds, self._draw())
        if pause is None or self._loop.time() + pause >= until:
            raise last
        await asyncio.sleep(pause)
        for node_id in [node_id for node_id, error in declined.items() if error.transient]:
            del declined[node_id]

    async def _depart(self, job: Job, target: str, attempt: int) -> Flight:
        """A flight to the node, once there is a link to send it over. Raises DeadlineExceeded, BusClosed."""
        now = self._loop.time()
        if not self._bus.connected and now < job.deadline:
            try:
                await self._bus.wait_connected(job.deadline - now)
            except NotConnected as error:
                raise refused(Code.DEADLINE_EXCEEDED, f"not sent: {error}") from None
            now = self._loop.time()
        self._check_open()
        if now >= job.deadline:
            raise refused(Code.DEADLINE_EXCEEDED, "the time of the call was over before it was sent")
        message = job.make(max(1, int((job.deadline - now) * 1000)), attempt)
        subject = subjects.build(self._bus.mesh, target, self._bus.settings.party, job.alias, job.verb.TYPE)
        node = self.nodes.get(target)
        run = node.run if node else ""
        flight = Flight(self._bus, subject, job.alias, message, target, run, job.deadline)
        self._flights.add(flight)
        if node is not None:
            node.forecast.sent(now, job.tokens, bulk=job.bulk)
        return flight

    def _land(self, flight: Flight, *, cancel: bool, error: Exception | None = None) -> None:
        if flight not in self._flights:
            return
        self._flights.discard(flight)
        if error is not None:
            flight.fail(error)
        flight.close()
        if cancel and self._bus.connected:
            task = self._loop.create_task(self._cancel(flight))
            self._cancels.add(task)
            task.add_done_callback(self._cancels.discard)

    async def _cancel(self, flight: Flight) -> None:
        mesh, party = self._bus.mesh, self._bus.settings.party
        subject = subjects.build(mesh, flight.target, party, flight.key, Cancel.TYPE)
        with contextlib.suppress(BusError):
            await self._bus.publish(subject, Cancel(request=flight.id))

    def _check_open(self) -> None:
        if self._closed is not None:
            raise Closed(self._closed)

    # -- what is heard

    async def news(self, until: float) -> bool:
        """Waits for the next Status, at most until then; whether one came."""
        self._news.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def settled(self, until: float) -> None:
        """Returns when every node had the time to be heard of."""
        await asyncio.sleep(max(0.0, min(until, self._began + SETTLED_S) - self._loop.time()))

    async def find(self, wanted: str, until: float) -> str:
        """The NodeID for a name or id; one that is not heard of is taken for an id. Raises BadRequest."""
        while not (found := self.nodes.named(wanted)):
            if self._loop.time() >= min(until, self._began + SETTLED_S):
                if not names.is_valid("NodeID", wanted):
                    told = ", ".join(node.label for node in self.nodes.all()) or "none"
                    raise refused(Code.BAD_REQUEST, f"no node is named {wanted[:80]!r}; there are: {told}")
                return wanted
            await self.news(min(until, self._began + SETTLED_S))
        if len(found) > 1:
            ids = ", ".join(node.node_id for node in found)
            raise refused(Code.BAD_REQUEST, f"several nodes are named {wanted!r}; give the id instead: {ids}")
        return found[0].node_id

    def _on_status(self, delivery: Delivery) -> None:
        status = delivery.received.message
        if not isinstance(status, SynapseStatus) or status.node_id != delivery.subject.node_id:
            return
        before = self.nodes.get(status.node_id)
        took_work = before is not None and before.takes_work
        ended = self.nodes.heard(status, self._loop.time())
        now_there = self.nodes.get(status.node_id)
        if took_work and now_there is not None and not now_there.takes_work:
            self._lost_at = self._loop.time()  # one that starts anew is down for a moment first
        self._news.set()
        for flight in [each for each in self._flights if each.node_id == status.node_id]:
            if not flight.run:
                flight.run = status.run
            elif ended is not None and flight.run != status.run:
                flight.lose("its module was started anew")

    async def _look(self) -> None:
        while True:
            due = self._loop.time() + LOOK_S
            await asyncio.sleep(LOOK_S)
            now = self._loop.time()
            if not self._bus.connected or now - due > LATE_S:  # it was this side that heard nothing
                self.nodes.resumed(now)
                continue
            for node_id in self.nodes.fallen_silent(now):
                self._lost_at = now
                alone = not self.nodes.all()
                for flight in list(self._flights):
                    if flight.node_id == node_id or (alone and flight.node_id == ANY_NODE):
                        flight.lose("it says nothing any more")

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Reconnected):
            self.nodes.resumed(self._loop.time())
            for flight in list(self._flights):
                flight.lose("the link to the server was down; its answer may be lost")


async def all_of(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Does all of them, some at once. Raises what the first one that fails does; the others are cancelled."""
    waiting = list(works)
    if len(waiting) == 1:
        await waiting[0]
        return
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(work: Coroutine[Any, Any, None]) -> None:
        async with slots:
            await work

    try:
        async with asyncio.TaskGroup() as group:
            for work in waiting:
                group.create_task(one(work))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        for work in waiting:
            work.close()  # where it was never begun
