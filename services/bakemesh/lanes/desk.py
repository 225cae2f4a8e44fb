"""Takes what modules ask of the lanes, and answers it: one request a lane at a time.

A message is taken in a plain callback: what needs no worker (Cancel, Ping, Lane, a lane that is occupied) is
answered there; only work has a task. Guarantees: each request has exactly one last answer, whatever dies
here; a refusal comes at once; an answer that the link could not take waits `BACK_S` for it. Left out: what
the verbs do (`verbs`), and the server's rights, which say who may ask.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Final

from bakemesh.bus import Bus
from bakemesh.bus.discovery import Counts
from bakemesh.bus.errors import BusError, MessageTooLarge, NotConnected
from bakemesh.bus.replies import Presence
from bakemesh.bus.sealing import payload_of
from bakemesh.bus.verbs import Subscription
from bakemesh.lanes.pulling import PullFailed
from bakemesh.lanes.status import Teller
from bakemesh.lanes.verbs import TABLE, Asked, Verbs
from bakemesh.protocol.admit import Delivery, Refusal
from bakemesh.protocol.inference import lanes as m
from bakemesh.protocol.inference.answers import Answer
from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.protocol.message import Message
from bakemesh.protocol.subjects import WORKER, WORKER_VERBS, pattern
from bakemesh.workerpool import Call, Pool, Turns, WorkerPoolError, error_object
from bakemesh.workerpool.lane import Lane

log = logging.getLogger(__name__)
BACK_S: Final = 6.0  # later the module has given it up
PRESENT_S: Final = 1.0  # so often a stream asks whether anybody listens


class Desk:
    """Of one lane host. `keys`: the pool's names of the lanes, and the mesh's."""

    def __init__(
        self,
        bus: Bus,
        node_id: str,
        keys: dict[str, str],
        pool: Pool,
        turns: Turns,
        verbs: Verbs,
        teller: Teller,
    ) -> None:
        self._bus, self._node_id, self._keys = bus, node_id, keys
        self._pool, self._turns, self._verbs, self._teller = pool, turns, verbs, teller
        self._loop = asyncio.get_running_loop()
        self._calls: dict[bytes, Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard: list[Subscription] = []
        self.endpoints: list[Counts] = []

    async def open(self) -> None:
        """Takes requests from here on. Raises AccessDenied, NotConnected, BusClosed."""
        listening = []
        for lane in self._pool.lanes:
            for verb in WORKER_VERBS:  # one subject each: rights name the verbs, no pattern of them
                wanted = pattern(
                    self._bus.mesh, f"{WORKER}.{verb}", node_id=self._node_id, key=self._keys[lane.name]
                )
                endpoint = Counts(wanted)
                self.endpoints.append(endpoint)
                take, refused = partial(self._take, lane, endpoint), partial(self._refused, endpoint)
                listening.append(self._bus.subscribe(wanted, take, refused=refused))
        self._heard = list(await asyncio.gather(*listening))

    async def close(self, within_s: float) -> None:
        """Takes no more, and lets what ended be answered."""
        await asyncio.gather(*(each.stop() for each in self._heard))
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=within_s)
            for task in late:
                task.cancel()

    # -- what comes in

    def _take(self, lane: Lane, endpoint: Counts, delivery: Delivery) -> None:
        message, reply = delivery.received.message, delivery.reply
        if isinstance(message, m.LaneCancel):
            if (call := self._calls.get(message.request)) is not None:
                call.cancel()
            endpoint.ended(0, None)
            return
        if reply is None:
            log.info("%s from %s: nobody waits for an answer; not done", message.type, delivery.subject.party)
            return
        request, began = delivery.received.id, time.perf_counter()
        if isinstance(message, m.LanePing):
            self._post(reply, self._pong(lane, request))
            endpoint.ended(time.perf_counter() - began, None)
        elif isinstance(message, m.LaneAsked):
            self._post(reply, m.LaneDescribed(request=request, lane=self._teller.status(lane).entries()))
            endpoint.ended(time.perf_counter() - began, None)
        elif (error := self._not_now(lane, request)) is not None:
            self._post(reply, m.LaneError.of(request, error))
            endpoint.ended(time.perf_counter() - began, str(error))
        else:
            assert isinstance(message, m.OfModel)
            within_s = None if message.deadlinems is None else message.deadlinems / 1000
            call = self._calls[request] = Call(within_s=within_s, attempt=message.attempt)
            task = self._loop.create_task(self._work(lane, endpoint, message, request, reply, call, began))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _not_now(self, lane: Lane, request: bytes) -> ErrorObject | None:
        """Why it is refused as it comes."""
        if request in self._calls:
            return error_of(Code.BAD_REQUEST, "a request with this id is at work here")
        if self._turns.free(lane):
            return None
        try:
            self._turns.check(lane.name)
        except WorkerPoolError as error:
            return error_object(error)
        return None

    def _refused(self, endpoint: Counts, refusal: Refusal) -> None:
        if refusal.reply is None or refusal.id is None:
            return
        error = error_of(Code.BAD_REQUEST, refusal.detail)
        self._post(refusal.reply, m.LaneError.of(refusal.id, error))
        endpoint.ended(0, str(error))

    def _pong(self, lane: Lane, request: bytes) -> Message:
        health = lane.health(self._loop.time())
        age_s = health.pong_age_s
        return m.LanePong(
            request=request,
            state=self._teller.status(lane).state,
            rss_mb=health.rss_mb,
            models_loaded=health.models_loaded,
            placement_share=health.placement_share,
            age_ms=None if age_s is None else int(age_s * 1000),
        )

    # -- work

    async def _work(
        self,
        lane: Lane,
        endpoint: Counts,
        message: m.OfModel,
        request: bytes,
        reply: str,
        call: Call,
        began: float,
    ) -> None:
        stream = _Stream(self._bus, request, reply, call)
        answer: Answer
        error: ErrorObject | None = None
        try:
            with self._turns.taken(lane.name, self._loop.time(), call):
                asked = Asked(request, lane, call, self._bus.max_payload, stream.token)
                answer = await TABLE[message.TYPE](self._verbs, message, asked)
        except WorkerPoolError as refused:
            error = error_object(refused)
        except PullFailed as refused:
            error = refused.error
        except Exception as defect:
            log.exception("lane %s failed on %s", lane.name, message.type)
            said = f"the lane host failed ({type(defect).__name__}); its log says more"
            error = error_of(Code.INFERENCE_FAILED, said)
        finally:
            stream.close()
            del self._calls[request]
        if error is not None:
            answer = m.LaneError.of(request, stream.judged(error))
        await self._answer(reply, answer)
        endpoint.ended(time.perf_counter() - began, None if error is None else str(error))

    async def _answer(self, reply: str, answer: Answer) -> None:
        try:
            self._bus.link.post(reply, payload_of(answer, self._bus.settings.sender))
        except MessageTooLarge as large:
            error = error_of(Code.BAD_REQUEST, f"the answer is too large: {large}")
            self._post(reply, m.LaneError.of(answer.request, error))
        except NotConnected:
            try:
                await self._bus.wait_connected(BACK_S)
            except BusError as error:
                log.warning("an answer is lost: %s", error)
            else:
                self._post(reply, answer)
        except BusError as error:
            log.warning("an answer is lost: %s", error)
        if self._bus.link.crowded:
            await self._bus.link.settle()

    def _post(self, reply: str, message: Message) -> None:
        try:
            self._bus.link.post(reply, payload_of(message, self._bus.settings.sender))
        except BusError as error:
            log.warning("an answer is lost: %s", error)


class _Stream:
    """The tokens of one request on their way; where nobody listens any more, it is cancelled."""

    def __init__(self, bus: Bus, request: bytes, reply: str, call: Call) -> None:
        self._bus, self._request, self._reply, self._call = bus, request, reply, call
        self._sender = bus.settings.sender
        self._presence: Presence | None = None
        self._asked = float("-inf")
        self._given = False

    def token(self, index: int, text: str) -> None:
        """Gives one."""
        now, probe = time.monotonic(), ""
        if now - self._asked >= PRESENT_S:
            if self._presence is None:
                self._presence = self._bus.presence(self._reply, self._call.cancel)
            self._asked, probe = now, self._presence.reply
        self._given = True
        payload = payload_of(m.LaneToken(request=self._request, index=index, text=text), self._sender)
        try:
            self._bus.link.post(self._reply, payload, probe)
        except BusError:  # a gap: the asker can make nothing of what would follow
            self._call.cancel()

    def judged(self, error: ErrorObject) -> ErrorObject:
        """The error, as it is after what was given."""
        if not self._given:
            return error
        return ErrorObject(
            error.code, error.message, error.kind, False, error.retry_after_ms, dict(error.details)
        )

    def close(self) -> None:
        """It is over."""
        if self._presence is not None:
            self._presence.close()
