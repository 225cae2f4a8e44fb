"""One child of one attempt of a `<recipe>` step, from its sending to its end.

    find the node ─→ written down ─→ sent ─→ followed: Status, Data, silence ─→ result
          └───────────── stop: Cancel, and an errand where that cannot be confirmed ──┘

Guarantees: the child is in the book before it is sent and leaves it only when it has ended; its chunks pass
as it cut them; a stop, a silent node or an error never leaves it running unseen. Left out: what the parent
says of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from bakemesh.builder.children.book import ChildBook
from bakemesh.builder.children.errands import cancel
from bakemesh.builder.steps import endings
from bakemesh.builder.steps.base import StepContext, StepResult, Stop, StopReason
from bakemesh.bus.errors import BusError, NotConnected, NotFound, StoreUnavailable
from bakemesh.protocol.builder.codes import AckOutcome, Code, StepOutcome, Verb
from bakemesh.protocol.builder.messages import (
    BakeCancelled,
    BakeOutcome,
    BakePaused,
    BakeRestarted,
    BakeStatus,
    BakeSuccess,
)
from bakemesh.protocol.builder.spec.model import RecipeStep
from bakemesh.protocol.errors import IntegrityError, ProtocolError
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import (
    Bake,
    NodeUnknown,
    NoNodeAvailable,
    NotStored,
    Prepared,
    RecipeRejected,
    Supervisor,
    SupervisorError,
)

log = logging.getLogger(__name__)
RETRY_S = 1.0
CANCEL_S = 10.0  # for the child's terminal and the rest of its Data after its Cancel
SHUTDOWN_S = 2.0
_SHOWN = 200
_PASSING = (NodeUnknown, NoNodeAvailable, NotStored, NotConnected, NotFound, StoreUnavailable)


@dataclass(frozen=True, slots=True)
class House:
    """What every child of a Builder shares."""

    supervisor: Supervisor
    book: ChildBook
    errand: Callable[[Identity], None]
    ready: asyncio.Event
    unreachable_s: float
    clock: Callable[[], float]
    claimed: Callable[[str], Awaitable[bool]]  # whether a node's Builder holds its claim


class _Ends(Exception):
    """Raised when the attempt ends before its child does."""

    def __init__(self, result: StepResult) -> None:
        super().__init__(result.summary)
        self.result = result


class Following:
    """Implements `steps.base.Children` for one step of one bake."""

    def __init__(self, house: House, parent: int, rests: Callable[[bool], None]) -> None:
        """`parent`: the bake's number in the journal; `rests` is told when the child pauses and runs on."""
        self._house, self._parent, self._rests = house, parent, rests
        self._child: Identity | None = None  # in the book
        self._bake: Bake | None = None
        self._heard = 0.0
        self._verb: Verb | None = None
        self._steering = asyncio.Event()

    async def control(self, verb: Verb) -> None:
        """Passes Pause or Start on; the latest one counts. `rests` tells when the child has followed it."""
        self._verb = verb
        self._steering.set()

    async def follow(self, context: StepContext, stop: Stop) -> StepResult:
        """Sends the step's inner recipe and follows it to its end."""
        work = _task(self._work(context), f"child of {context.step.name}")
        asked = _task(stop.wait(), f"stop of {context.step.name}")
        try:
            await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                result: StepResult = work.result()
                return result
            return await self._stopped(work, asked.result())
        finally:
            for task in (work, asked):
                task.cancel()
            await asyncio.gather(work, asked, return_exceptions=True)
            await self._leave()

    # -- to its end

    async def _work(self, context: StepContext) -> StepResult:
        step = context.step
        assert isinstance(step, RecipeStep)
        self._heard = self._house.clock()
        try:
            await self._house.ready.wait()
            bake = self._bake = await self._send(context, step)
            await self._follow(context, step, bake)
            assert bake.terminal is not None
            return _outcome(bake.terminal)
        except _Ends as ends:
            return ends.result
        except RecipeRejected as error:
            await self._strike_out()
            return _refused(error, step.node)
        except IntegrityError as error:
            return StepResult(StepOutcome.FAILED, f"{self._named}: {error}", code=Code.INTEGRITY)
        except (SupervisorError, ProtocolError, BusError) as error:
            return endings.failed(f"{self._named}: {str(error)[:_SHOWN]}")

    async def _send(self, context: StepContext, step: RecipeStep) -> Bake:
        """Finds the node and sends, for as long as nobody answers; returns when the recipe is stored."""
        house, leapt = self._house, False
        prepared: Prepared | None = None
        while True:
            try:
                if prepared is None:
                    prepared = await house.supervisor.prepare(
                        step.xml,
                        node=step.node,
                        params=context.params or None,
                        parent=context.identity.recipe_id,
                        parent_supervisor=context.identity.supervisor,
                    )
                    await house.book.opened(self._parent, prepared.identity)
                    self._child = prepared.identity
                bake = await house.supervisor.send(prepared)
            except RecipeRejected as error:
                retry_s = self._again_after(error, leapt=leapt)
                if retry_s is None:
                    raise
                await self._strike_out()
                prepared = None
                if error.code == Code.DUPLICATE_RECIPE_ID:
                    leapt = True
                    await house.book.leap()
                await asyncio.sleep(retry_s)
            except _PASSING as error:
                self._refuse_silence(step)
                log.info("step %s waits for node %s: %s", step.name, step.node, error)
                await context.progress(None, f"waiting for node {step.node}")
                await asyncio.sleep(RETRY_S)
            else:
                if bake.result is not None:
                    self._heard = house.clock()
                return bake

    def _again_after(self, error: RecipeRejected, *, leapt: bool) -> float | None:
        """Seconds after which another RecipeID is tried; None: the refusal stands."""
        if error.code == Code.RATE_LIMITED:
            return (error.result.retryms or 1000) / 1000
        if error.code == Code.DUPLICATE_RECIPE_ID and not leapt:
            return 0.0  # this node's journal was lost, and the number used before
        return None

    async def _follow(self, context: StepContext, step: RecipeStep, bake: Bake) -> None:
        """Returns when the child has ended and all its Data has passed."""
        reading = {
            _task(self._status(context, bake), f"status of {bake.recipe_id}"),
            _task(self._data(context, step, bake), f"data of {bake.recipe_id}"),
        }
        beside = {
            _task(self._silence(step, bake), f"silence of {bake.recipe_id}"),
            _task(self._steer(bake), f"controls of {bake.recipe_id}"),
        }
        try:
            open_ = set(reading)
            while open_:
                done, _ = await asyncio.wait(open_ | beside, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                open_ -= done
        finally:
            for task in reading | beside:
                task.cancel()
            await asyncio.gather(*reading, *beside, return_exceptions=True)

    async def _status(self, context: StepContext, bake: Bake) -> None:
        async with aclosing(bake.status()) as statuses:
            async for status in statuses:
                self._heard = self._house.clock()
                await self._hear(context, status)

    async def _hear(self, context: StepContext, status: BakeStatus) -> None:
        own_pause = (
            status.kind == "ack"
            and status.verb == Verb.PAUSE
            and status.outcome == AckOutcome.PAUSED
            and status.issuedby == self._house.supervisor.name
        )
        if isinstance(status, BakePaused) and status.code == Code.HELD:
            await context.progress(None, f"{self._named} is held at its step {status.stepindex}")
        elif isinstance(status, BakePaused) or own_pause:
            self._rests(True)
        elif isinstance(status, BakeRestarted):
            self._rests(False)
        elif status.kind in ("start", "step", "interim"):
            percent = status.pct if status.pct >= 0 else None
            await context.progress(percent, f"on {status.node}: {status.summary[:_SHOWN]}")

    async def _data(self, context: StepContext, step: RecipeStep, bake: Bake) -> None:
        async with aclosing(bake.data()) as chunks:
            async for chunk in chunks:
                self._heard = self._house.clock()
                await context.output.passthrough(
                    chunk.stream,
                    chunk.data,
                    path=f"{step.index}/{chunk.path or chunk.stepindex}",
                    finalchunk=chunk.finalchunk,
                    partial=chunk.partial,
                    aborted=chunk.aborted,
                )

    async def _silence(self, step: RecipeStep, bake: Bake) -> None:
        """Raises _Ends when nothing was heard for too long; where a child does not beat, its node counts."""
        limit, house = self._house.unreachable_s, self._house
        intervals = [step.recipe.status_interval_ms, *(each.status_interval_ms for each in step.recipe.steps)]
        beats = all(0 < interval < limit * 500 for interval in intervals)
        while limit > 0:
            await asyncio.sleep(max(0.01, self._heard + limit - house.clock()))
            if bake.terminal is None and house.clock() - self._heard >= limit:
                if not beats and not bake.waiting and await house.claimed(bake.node_id):
                    self._heard = house.clock()
                else:
                    self._refuse_silence(step)
            elif bake.terminal is not None:
                break
        await asyncio.Event().wait()  # from here on the readers of Status and Data know the end

    def _refuse_silence(self, step: RecipeStep) -> None:
        limit = self._house.unreachable_s
        if limit > 0 and self._house.clock() - self._heard >= limit:
            summary = f"node {step.node} was silent for {endings.duration(limit)}"
            later = f"; {self._named} is cancelled when it is back" if self._child else ""
            raise _Ends(StepResult(StepOutcome.FAILED, summary + later, code=Code.NODE_UNREACHABLE))

    async def _steer(self, bake: Bake) -> None:
        """Passes controls on, the latest one for as long as the child does not answer."""
        while True:
            await self._steering.wait()
            self._steering.clear()
            verb = self._verb
            assert verb is not None
            try:
                result = await bake.control(verb)
            except (BusError, SupervisorError) as error:
                log.info("%s did not get %s: %s", self._named, verb, error)
            else:
                self._heard = self._house.clock()
                if result.code not in (Code.UNKNOWN_RECIPE, Code.RATE_LIMITED):
                    continue
            await asyncio.sleep(RETRY_S)
            self._steering.set()

    # -- before its end

    async def _stopped(self, work: asyncio.Task[StepResult], reason: StopReason) -> StepResult:
        """Cancels the child and follows it to its end, for a while."""
        wait_s = SHUTDOWN_S if reason is StopReason.SHUTDOWN else CANCEL_S
        bake = self._bake
        if bake is None:
            return endings.stopped(reason, "before its child was taken")
        try:
            async with asyncio.timeout(wait_s):
                if await cancel(bake):
                    await asyncio.wait({work})
        except (TimeoutError, BusError, SupervisorError) as error:
            log.info("%s is not cancelled yet: %s", self._named, error)
        told = "has ended" if bake.terminal is not None else "is cancelled when its node is back"
        return endings.stopped(reason, f"and {self._named} {told}")

    async def _leave(self) -> None:
        """A child that has ended is struck out; any other becomes an errand."""
        bake, self._bake = self._bake, None
        if bake is not None:
            if bake.terminal is not None:
                await self._strike_out()
            await bake.close()
        if self._child is not None:
            self._house.errand(self._child)

    async def _strike_out(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await self._house.book.closed(child)

    @property
    def _named(self) -> str:
        return f"child {self._child.recipe_id} on {self._child.node}" if self._child else "its child"


def _refused(error: RecipeRejected, node: str) -> StepResult:
    first = f" ({error.problems[0].get('message', '')})" if error.problems else ""
    said = f"{error.code}: {error.result.summary}{first}"
    return endings.failed(f"node {node} refused the inner recipe, {said[: 2 * _SHOWN]}")


def _outcome(terminal: BakeOutcome) -> StepResult:
    named = f"child {terminal.recipe_id} on {terminal.node}"
    if isinstance(terminal, BakeSuccess):
        failed = len(terminal.failedsteps or ())
        return StepResult(
            StepOutcome.OK, f"{named} succeeded" + (f", {failed} steps failed" if failed else "")
        )
    if isinstance(terminal, BakeCancelled):
        return endings.failed(f"{named} was cancelled by somebody else")
    where = "" if terminal.stepindex is None else f" at its step {terminal.stepindex}"
    return endings.failed(f"{named} failed{where}, {terminal.code}: {terminal.summary[:_SHOWN]}")


def _task(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    return asyncio.create_task(work, name=name)
