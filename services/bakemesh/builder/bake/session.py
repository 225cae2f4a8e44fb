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
from bakemesh.builder.bake.dataline import DataLine
from bakemesh.builder.bake.describe import describe
from bakemesh.builder.bake.heart import Heart
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
from bakemesh.builder.components.records import Maker
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
from bakemesh.builder.output.step_output import StepOutput
from bakemesh.builder.steps import runner_for
from bakemesh.builder.steps.base import Children, ComponentHost, StepContext, StepResult, Stop, StopReason
from bakemesh.processes import Keeper
from bakemesh.protocol.builder.codes import Code, StepOutcome
from bakemesh.protocol.builder.lifecycle import TERMINAL, Phase
from bakemesh.protocol.builder.spec.model import Recipe
from bakemesh.protocol.builder.spec.references import Values, expand

log = logging.getLogger(__name__)
_REASONS = {
    Stopping.CANCEL: StopReason.CANCEL,
    Stopping.SKIP: StopReason.SKIP,
    Stopping.RETRY: StopReason.RETRY,
    Stopping.BAKE_TIMEOUT: StopReason.TIMEOUT,
    Stopping.FAIL: StopReason.CANCEL,
}
STATUS_MOST = 100  # so many Status of one bake may wait for the bus; then it says only what it must
HOLD_S = 1.0
STOP_S, SAY_S = 3.0, 1.5  # at the Builder's stop: for a killed step to end, and to say what became of it
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
    components: ComponentHost
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
        self.expires = row.expires
        self.params = row.params
        self.state: State = row.state
        self.serial = row.serial
        self.folder = kit.folder / str(row.bake)
        db = kit.journal.db
        self.ctrlseqs = last_ctrlseqs(db, row.bake)
        self.pushed = Pushed(recipe.requests, pushes_of(db, row.bake))
        self.entries = entries_of(db, row.bake)
        self._spoken = asyncio.Event()
        self.data = DataLine(
            kit.journal,
            kit.data,
            kit.voice,
            row.bake,
            row.identity,
            seq=row.seq,
            open_streams=list(row.open_streams),
            broken=lambda error: self.tell(Broken(Code.INTEGRITY, str(error))),
        )
        self._events: asyncio.Queue[tuple[Event, asyncio.Future[None] | None]] = asyncio.Queue()
        self._stop: Stop | None = None
        self._step: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._heart = Heart(kit.clock.monotonic, self._beat, self._nobody_hears)
        self._stopping = False  # the Builder stops: no further step begins
        self._progressed = 0.0
        self._side: set[asyncio.Task[object]] = set()
        self._children: Children | None = None
        self._actor: asyncio.Task[None] | None = None

    @property
    def seq(self) -> int:
        """The last Data seq that was given."""
        return self.data.seq

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
        await self.data.close_cut(self._run_of_cursor())
        await self.apply(Recovered(self.seq))

    def _run_of_cursor(self) -> RunStep:
        return RunStep(self.state.cursor, max(1, self.state.attempt))

    async def stop(self) -> None:
        """The Builder stops: ends the running step; what may not be run again ends Failed now, not at the
        next start. Bounded: what cannot be said in time, for a bus, a store or a disk, is said then.
        """
        self._stopping = True
        step = self._step
        if step is not None and not step.done() and self._stop is not None:
            self._stop.request(StopReason.SHUTDOWN)
            self.data.give_up()
            _, late = await asyncio.wait([step], timeout=self.kit.kill_grace_s + STOP_S)
            if not late:
                with contextlib.suppress(TimeoutError, JournalClosed):
                    async with asyncio.timeout(SAY_S):
                        await self._say_stopped()
        if self._ending is not None:
            await asyncio.wait([self._ending], timeout=SAY_S)
        await self.close()

    async def _say_stopped(self) -> None:
        await self.data.close_cut(self._run_of_cursor())
        await self.apply(Recovered(self.seq, "the Builder was stopped", rerun=False))

    async def close(self) -> None:
        """Stops taking events. Idempotent; the journal keeps what is left to do."""
        self._heart.stop()
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

    async def spoken(self) -> None:
        """Returns when the first event is journaled and what follows from it said."""
        await self._spoken.wait()

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
            finally:
                self._spoken.set()

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
        for effect in effects:
            if isinstance(effect, StopStep):  # at once, whatever the disk says: killing twice does no harm
                self._stop_step(effect)

        def work(db: Db) -> list[OutRow]:
            if state is not self.state or messages:
                save_state(db, self.bake, state, serial, ended)
            if isinstance(event, Control):
                save_ctrlseq(db, self.bake, event.issuedby, event.ctrlseq)
            if isinstance(event, Ended):
                save_seq(db, self.bake, event.lastseq, [])
                self.kit.data.delete(db, event.taken)
            return [self.kit.status.insert(db, self.bake, number, *sealed) for number, sealed in messages]

        await self.kit.journal.commit(work, self._send_status)
        self.state, self.serial = state, serial
        if isinstance(event, Control):
            self.ctrlseqs[event.issuedby] = event.ctrlseq
        for effect in effects:
            self._act(effect)
        self._arm_beat()

    def _send_status(self, rows: list[OutRow]) -> None:
        self._spoken.set()
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
            case ArmRetry():
                self._arm_retry(effect)
            case TellChild():
                if self._children is not None:
                    self._spawn(self._children.control(effect.verb))
            case End():
                self._begin_end()
            case SayEnd():
                self._over()
            case Say() if effect.kind == "start":
                self._arm_timeout()
            case _:
                pass

    def _stop_step(self, effect: StopStep) -> None:
        if effect.why is Stopping.CANCEL:
            self.data.give_up()
        if self._stop is not None:
            self._stop.request(_REASONS[effect.why])

    def _arm_retry(self, effect: ArmRetry) -> None:
        """The delay, jittered; and where the bus is away, until it has heard of what was tried before."""
        delay = effect.delay_ms / 1000 * (0.5 + self.kit.jitter())

        def due() -> None:
            if self.kit.status.waiting(self.bake) > STATUS_MOST:
                self._arm("retry", HOLD_S, due)
            else:
                self.tell(RetryDue(effect.attempt))

        self._arm("retry", delay, due)

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
        if self.state.phase in TERMINAL:
            self._heart.stop()
        elif self.state.running:
            self._heart.set(self.recipe.steps[self.state.cursor].status_interval_ms / 1000)
        else:
            self._heart.set(self.recipe.status_interval_ms / 1000)

    def _beat(self) -> None:
        self.tell(Remark(describe(self.recipe, self.state, store_full=self.store_full)))

    def _nobody_hears(self) -> bool:
        return bool(self.kit.status.waiting(self.bake)) or self.kit.status.writer.full

    @property
    def store_full(self) -> bool:
        """Whether this bake's output waits for room in the node's Data stream."""
        return self.data.held_up

    # -- a step's attempt

    async def _attempt(self, run: RunStep, stop: Stop) -> None:
        step = self.recipe.steps[run.index]
        kit = self.kit
        output = StepOutput.of(step, kit.clock.monotonic, lambda chunk: self.data.take(run, chunk))
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
            components=kit.components,
            maker=Maker(self.bake, run.index, run.since),
            again=run.since != run.attempt,
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
        if stop.reason is StopReason.SHUTDOWN and result.outcome is StepOutcome.CANCELLED:
            return  # `stop` says what becomes of it
        await self.data.close_cut(run)
        self.tell(
            StepEnded(
                result.outcome,
                result.summary,
                self.seq,
                result.exitcode,
                result.code,
                lost=result.lost,
                stopping=self._stopping,
            )
        )

    async def _progress(self, percent: int | None, summary: str | None) -> None:
        now = self.kit.clock.monotonic()
        if self.kit.status.waiting(self.bake) > STATUS_MOST or self._events.qsize() > STATUS_MOST:
            return  # the bus, or the disk, has not taken what was said before
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

    def _begin_end(self) -> None:
        """One task an end: a Cancel while output waits for room turns it, and is seen by it."""
        if self.state.ending is not None and self.state.ending.phase is Phase.CANCELLED:
            self.data.give_up()
        if self._ending is None or self._ending.done():
            self._ending = asyncio.create_task(self._end(), name=f"end {self.identity.recipe_id}")

    async def _end(self) -> None:
        def cancelled() -> bool:
            return self.state.ending is not None and self.state.ending.phase is Phase.CANCELLED

        lastseq, taken = await self.data.settle(cancelled)
        self.tell(Ended(lastseq, taken))

    def _over(self) -> None:
        self._heart.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.kit.over(self)
