"""One bake, alive: an actor that takes events in order, journals what `core` decided, and only then acts.

Guarantees: a step begins after the row that says so is committed; Status serials and Data seqs are gap-free
because they are given inside the transaction that stores the message; the terminal is written when every Data
is stored. Left out: which bakes may run (see `kitchen`), what a message must look like to get here (see
`intake`, `controls`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakemesh.builder.bake import core
from bakemesh.builder.bake.describe import describe
from bakemesh.builder.bake.pushed import Pushed
from bakemesh.builder.bake.state import (
    ArmRetry,
    BakeTimeout,
    Broken,
    ChildRests,
    Control,
    Effect,
    End,
    Ended,
    Ending,
    Event,
    Progress,
    Recovered,
    Refused,
    Remark,
    RetryDue,
    RunStep,
    Say,
    SayEnd,
    SayOutcome,
    State,
    StepEnded,
    Stopping,
    StopStep,
    TellChild,
)
from bakemesh.builder.bake.voice import Voice
from bakemesh.builder.clock import Clock
from bakemesh.builder.journal import Journal, JournalClosed
from bakemesh.builder.journal.records import (
    BakeRow,
    Db,
    OutRow,
    entries_of,
    last_ctrlseqs,
    pushes_of,
    save_ctrlseq,
    save_entry,
    save_push,
    save_seq,
    save_state,
)
from bakemesh.builder.outbox import Outbox
from bakemesh.builder.output.cutter import Chunk
from bakemesh.builder.output.step_output import PassedChunk, StepOutput
from bakemesh.builder.steps import runner_for
from bakemesh.builder.steps.base import Children, StepContext, StepResult, Stop, StopReason
from bakemesh.processes import Keeper
from bakemesh.protocol.builder.codes import Code, StepOutcome
from bakemesh.protocol.builder.lifecycle import TERMINAL, Phase
from bakemesh.protocol.builder.spec.model import Recipe
from bakemesh.protocol.builder.spec.references import Values, expand
from bakemesh.protocol.builder.streams import DataGuard
from bakemesh.protocol.errors import IntegrityError

log = logging.getLogger(__name__)
_REASONS = {
    Stopping.CANCEL: StopReason.CANCEL,
    Stopping.SKIP: StopReason.SKIP,
    Stopping.RETRY: StopReason.RETRY,
    Stopping.BAKE_TIMEOUT: StopReason.TIMEOUT,
    Stopping.FAIL: StopReason.CANCEL,
}
DRAIN_S = 2.0  # a cancelled bake's last output has so long to be stored
PROGRESS_S = 0.2  # at most so often does a step's own progress become a Status


@dataclass(frozen=True, slots=True)
class Kit:
    """What every session of a Builder shares."""

    journal: Journal
    status: Outbox
    data: Outbox
    keeper: Keeper
    clock: Clock
    voice: Voice
    folder: Path
    environment: Mapping[str, str]
    kill_grace_s: float
    children: Callable[[Session], Children]
    over: Callable[[Session], None]  # the bake has ended: its place is free
    jitter: Callable[[], float] = random.random


def refuse_stale(ctrlseqs: Mapping[str, int], issuer: str, ctrlseq: int) -> None:
    """Raises Refused where `ctrlseq` is not above the issuer's last accepted one."""
    last = ctrlseqs.get(issuer)
    if last is not None and ctrlseq <= last:
        raise Refused(Code.STALE_CTRLSEQ, f"ctrlseq {ctrlseq} after {last} of {issuer}")


class Session:
    """A bake between its intake and its end."""

    def __init__(self, kit: Kit, row: BakeRow, recipe: Recipe) -> None:
        self.kit, self.recipe = kit, recipe
        self.bake = row.bake
        self.identity = row.identity
        self.created, self.expires = row.created, row.expires
        self.params = row.params
        self.state: State = row.state
        self.serial = row.serial
        self.guard = DataGuard(row.seq)
        self.folder = kit.folder / str(row.bake)
        db = kit.journal.db
        self.ctrlseqs = last_ctrlseqs(db, row.bake)
        self.pushed = Pushed(recipe.requests, pushes_of(db, row.bake))
        self.entries = entries_of(db, row.bake)
        self.ended = asyncio.Event()
        self._open: list[str] = list(row.open_streams)
        self._events: asyncio.Queue[tuple[Event, asyncio.Future[None] | None]] = asyncio.Queue()
        self._stop: Stop | None = None
        self._step: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._beat_s = 0.0
        self._beaten = kit.clock.monotonic()  # when it beat last; at first when it was opened
        self._beating = False
        self._dropping = False
        self._progressed = 0.0
        self._taken: Chunk | PassedChunk | None = None
        self._side: set[asyncio.Task[object]] = set()
        self._children: Children | None = None
        self._actor: asyncio.Task[None] | None = None

    @property
    def seq(self) -> int:
        """The last Data seq that was given."""
        return self.guard.last

    @property
    def phase(self) -> Phase:
        """Where the bake is."""
        return self.state.phase

    # -- life

    def open(self) -> None:
        """Begins to take events and to beat."""
        self._actor = asyncio.create_task(self._run(), name=f"bake {self.identity.recipe_id}")
        self._arm_beat()
        self._arm_timeout()

    async def recover(self) -> None:
        """After a restart of the Builder: closes the streams that the crash cut, then lets `core` decide."""
        await self._close_cut_streams()
        await self.apply(Recovered(self.seq))

    async def stop(self) -> None:
        """The Builder stops: ends the running step; what may not be run again ends Failed now, not at the
        next start.
        """
        step = self._step
        if step is not None and not step.done():
            if self._stop is not None:
                self._stop.request(StopReason.SHUTDOWN)
            await asyncio.wait([step], timeout=self.kit.kill_grace_s + 5)
            await self._close_cut_streams()
            await self.apply(Recovered(self.seq, "the Builder was stopped", rerun=False))
        if self._ending is not None:
            await asyncio.wait([self._ending], timeout=2)
        await self.close()

    async def close(self) -> None:
        """Stops taking events. Idempotent; the journal keeps what is left to do."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = [task for task in (self._actor, self._step, self._ending, *self._side) if task is not None]
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*(t for t in tasks if t is not asyncio.current_task()), return_exceptions=True)

    async def apply(self, event: Event) -> None:
        """Takes an event and returns when what follows from it is journaled. Raises Refused for a control."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._events.put_nowait((event, done))
        await done

    def tell(self, event: Event) -> None:
        """Takes an event; nobody waits."""
        self._events.put_nowait((event, None))

    async def _run(self) -> None:
        while True:
            event, done = await self._events.get()
            try:
                await self._turn(event)
            except Refused as refused:
                if done is not None and not done.done():
                    done.set_exception(refused)
            except JournalClosed:
                if done is not None and not done.done():
                    done.set_exception(JournalClosed())
                return
            except Exception as error:
                log.exception("bake %s: %s", self.identity.recipe_id, type(event).__name__)
                if done is not None and not done.done():
                    done.set_exception(error)
            else:
                if done is not None and not done.done():
                    done.set_result(None)

    async def _turn(self, event: Event) -> None:
        if isinstance(event, Control):
            refuse_stale(self.ctrlseqs, event.issuedby, event.ctrlseq)
        state, effects = core.step(self.recipe, self.state, event)
        said = [effect for effect in effects if isinstance(effect, (Say, SayOutcome, SayEnd))]
        pct = core.percent(self.recipe, state)
        messages = [
            (serial, self.kit.voice.status(self.identity, each, serial=serial, pct=pct))
            for serial, each in enumerate(said, self.serial + 1)
        ]
        serial = self.serial + len(messages)
        ended = self.kit.clock.wall() if state.phase in TERMINAL else None

        def work(db: Db) -> list[OutRow]:
            if state is not self.state or messages:
                save_state(db, self.bake, state, serial, ended)
            if isinstance(event, Control):
                save_ctrlseq(db, self.bake, event.issuedby, event.ctrlseq)
            if isinstance(event, Ended):
                save_seq(db, self.bake, event.lastseq, [])
            return [self.kit.status.insert(db, self.bake, number, *sealed) for number, sealed in messages]

        await self.kit.journal.commit(work, self._send_status)
        self.state, self.serial = state, serial
        if isinstance(event, Control):
            self.ctrlseqs[event.issuedby] = event.ctrlseq
        for effect in effects:
            self._act(effect)
        self._arm_beat()

    def _send_status(self, rows: list[OutRow]) -> None:
        for row in rows:
            self.kit.status.journaled(row)

    # -- effects

    def _act(self, effect: Effect) -> None:
        match effect:
            case RunStep():
                self._stop = Stop()
                self._step = asyncio.create_task(
                    self._attempt(effect, self._stop), name=f"step {effect.index}"
                )
            case StopStep():
                self._dropping = effect.why is Stopping.CANCEL
                self.kit.data.wake()
                if self._stop is not None:
                    self._stop.request(_REASONS[effect.why])
            case ArmRetry():
                delay = effect.delay_ms / 1000 * (0.5 + self.kit.jitter())
                self._arm("retry", delay, lambda: self.tell(RetryDue(effect.attempt)))
            case TellChild():
                if self._children is not None:
                    self._spawn(self._children.control(effect.verb))
            case End():
                self._ending = asyncio.create_task(
                    self._end(effect.ending), name=f"end {self.identity.recipe_id}"
                )
            case SayEnd():
                self._over()
            case Say() if effect.kind == "start":
                self._arm_timeout()
            case _:
                pass

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._side.add(task)
        task.add_done_callback(self._side.discard)

    def _arm(self, name: str, delay: float, call: Callable[[], None]) -> None:
        if old := self._timers.pop(name, None):
            old.cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(delay, call)

    def _arm_timeout(self) -> None:
        """The root's timeout counts from the bake's begin, restarts of the Builder included."""
        if self.recipe.timeout_ms and self.state.begun and not self.state.over:
            spent = max(0, self.kit.clock.wall() - self.state.begun) / 1e6
            self._arm(
                "timeout", max(0.0, self.recipe.timeout_ms / 1000 - spent), lambda: self.tell(BakeTimeout())
            )

    # -- heartbeat

    def _arm_beat(self) -> None:
        """A fixed timer, whatever else is said: armed anew only where the interval changes (a step may have
        its own while it runs), and then from the last beat, so that no change puts a beat off.
        """
        interval = self.recipe.status_interval_ms / 1000
        if self.state.running:
            interval = self.recipe.steps[self.state.cursor].status_interval_ms / 1000
        if interval != self._beat_s:
            self._beat_s = interval
            self._next_beat()

    def _next_beat(self) -> None:
        if old := self._timers.pop("beat", None):
            old.cancel()
        if self._beat_s > 0 and self.state.phase not in TERMINAL:
            due = self._beaten + self._beat_s - self.kit.clock.monotonic()
            self._arm("beat", max(0.0, due), self._beat)

    def _beat(self) -> None:
        self._beaten = self.kit.clock.monotonic()
        # While the bus is away a second beat would tell nobody anything: one waits already.
        if not self._beating and not self.kit.status.waiting(self.bake):
            self._beating = True
            self._spawn(self._say_beat())
        self._next_beat()

    async def _say_beat(self) -> None:
        try:
            await self.apply(Remark(describe(self.recipe, self.state, store_full=self.store_full)))
        finally:
            self._beating = False

    @property
    def store_full(self) -> bool:
        """Whether this bake's output waits for room in the node's Data stream."""
        return self.kit.data.writer.full and self.kit.data.waiting(self.bake) > 0

    # -- a step's attempt

    async def _attempt(self, run: RunStep, stop: Stop) -> None:
        step = self.recipe.steps[run.index]
        kit = self.kit
        output = StepOutput.of(step, kit.clock.monotonic, lambda chunk: self._take_chunk(run, chunk))
        self._children = kit.children(self) if step.KIND == "recipe" else None
        values = Values(
            entries=self.entries,
            exitcodes=self.state.exitcodes,
            params=self.params,
            node=self.identity.node,
            node_id=self.identity.node_id,
            recipe_id=self.identity.recipe_id,
        )
        context = StepContext(
            identity=self.identity,
            step=step,
            attempt=run.attempt,
            folder=self.folder,
            expand=lambda text: expand(text, values),
            output=output,
            progress=self._progress,
            ask=self._ask,
            pushes=self.pushed,
            keep_entry=self._keep_entry,
            entry=lambda name: self.entries.get(name, b""),
            processes=kit.keeper,
            environment=kit.environment,
            kill_grace_s=kit.kill_grace_s,
            children=self._children,
            params=self.params,
            clock=kit.clock.monotonic,
        )
        if step.timeout_ms:
            self._arm("step", step.timeout_ms / 1000, lambda: stop.request(StopReason.TIMEOUT))
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            result = await runner_for(step).run(context, stop)
        except OSError as error:
            log.error("bake %s step %s: %s", self.identity.recipe_id, run.index, error)
            reason = error.strerror or type(error).__name__
            result = StepResult(StepOutcome.FAILED, f"the Builder could not run it: {reason}")
        except Exception as error:
            log.exception("bake %s step %s", self.identity.recipe_id, run.index)
            result = StepResult(StepOutcome.FAILED, f"the Builder failed to run it: {type(error).__name__}")
        if timer := self._timers.pop("step", None):
            timer.cancel()
        await output.aclose()
        if stop.reason is StopReason.SHUTDOWN:
            return
        await self._close_cut_streams()
        self.tell(
            StepEnded(result.outcome, result.summary, self.seq, result.exitcode, result.code, result.lost)
        )

    async def _take_chunk(self, run: RunStep, chunk: Chunk | PassedChunk) -> None:
        """The step output's sink. A chunk that was given its seq is never taken twice, cancelled or not."""
        if chunk is self._taken:
            return
        if not await self.kit.data.room(self.bake, give_up=lambda: self._dropping):
            return  # cancelled while nothing can be stored: what is not stored leaves with the bake
        self._taken = chunk
        path = chunk.path if isinstance(chunk, PassedChunk) else None
        aborted = chunk.aborted if isinstance(chunk, PassedChunk) else False
        await self._journal_chunk(
            run,
            chunk.stream,
            chunk.data,
            final=chunk.finalchunk,
            partial=chunk.partial,
            aborted=aborted,
            path=path,
        )

    async def _journal_chunk(
        self,
        run: RunStep,
        stream: str,
        data: bytes,
        *,
        final: bool,
        partial: bool = False,
        aborted: bool = False,
        path: str | None = None,
    ) -> None:
        """Gives the chunk its seq and commits it. No await in between: the journal keeps the order of the
        calls.
        """
        seq = self.guard.last + 1
        try:
            self.guard.accept(seq)
        except IntegrityError as error:
            self.tell(Broken(Code.INTEGRITY, str(error)))
            return
        sealed = self.kit.voice.data(
            self.identity,
            seq=seq,
            stepindex=run.index,
            attempt=run.attempt,
            stream=stream,
            data=data,
            finalchunk=final,
            partial=partial,
            aborted=aborted,
            path=path,
        )
        key = stream if path is None else f"{stream} {path}"
        if final:
            self._open = [each for each in self._open if each != key]
        elif key not in self._open:
            self._open = [*self._open, key]
        streams = self._open

        def work(db: Db) -> OutRow:
            save_seq(db, self.bake, seq, streams)
            return self.kit.data.insert(db, self.bake, seq, *sealed)

        await self.kit.journal.commit(work, self.kit.data.journaled)

    async def _close_cut_streams(self) -> None:
        """Streams of the running attempt that wrote and whose last chunk never came: an empty one closes
        each.
        """
        run = RunStep(self.state.cursor, max(1, self.state.attempt))
        for key in self._open:
            if not await self.kit.data.room(self.bake, give_up=lambda: self._dropping):
                return
            stream, _, path = key.partition(" ")
            await self._journal_chunk(run, stream, b"", final=True, aborted=True, path=path or None)

    async def _progress(self, percent: int | None, summary: str | None) -> None:
        now = self.kit.clock.monotonic()
        if now - self._progressed >= PROGRESS_S or percent == 100:
            self._progressed = now
            self.tell(Progress(percent, summary))

    async def _ask(self, request: str) -> None:
        await self.apply(Remark(f"waiting for data {request!r}", {"request": request}))

    async def _keep_entry(self, name: str, data: bytes) -> None:
        await self.kit.journal.commit(lambda db: save_entry(db, self.bake, name, data))
        self.entries[name] = data

    # -- from outside

    async def push(self, request: str, part: int, last: bool, data: bytes) -> None:
        """Keeps a part of a push and hands it to a step that waits. The checks were made by `pushes`."""
        await self.kit.journal.commit(lambda db: save_push(db, self.bake, request, part, last, data))
        self.pushed.add(request, part, last, data)

    def child_rests(self, paused: bool) -> None:
        """The child recipe that the running step follows said Paused or Restarted."""
        self.tell(ChildRests(paused))

    # -- the end

    async def _end(self, ending: Ending) -> None:
        data = self.kit.data
        if ending.phase is Phase.CANCELLED:
            self._dropping = True
            if not data.writer.full:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(data.drained(self.bake), DRAIN_S)
            lowest = await data.discard(self.bake, self.kit.voice.data_subject(self.identity))
            lastseq = self.seq if lowest is None else lowest - 1
        else:
            await data.drained(self.bake)
            lastseq = self.seq
        self.tell(Ended(lastseq))

    def _over(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.ended.set()
        self.kit.over(self)
