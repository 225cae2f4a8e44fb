"""What a bake does next: pure, one function from (recipe, state, event) to (state, effects).

Phases change through the lifecycle table alone. Guarantees: after the end is decided no step starts; no step
that is not retryable has two attempts (but for IDEMPOTENT ones that a restart of the Builder cut); every
control that is accepted is acknowledged exactly once; entering a rest says Bake.Paused and leaving it says
Bake.Restarted. Left out: serials, seqs, clocks, journal, processes (see `session`).
"""

from __future__ import annotations

from dataclasses import replace

from bakemesh.builder.bake.state import (
    ArmRetry,
    BakeTimeout,
    Begin,
    Broken,
    ChildRests,
    Control,
    Effect,
    End,
    Ended,
    Ending,
    Event,
    PendingPause,
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
    ack,
)
from bakemesh.protocol.builder import lifecycle
from bakemesh.protocol.builder.codes import AckOutcome, Code, StepOutcome, Verb
from bakemesh.protocol.builder.lifecycle import Event as Move
from bakemesh.protocol.builder.lifecycle import Phase
from bakemesh.protocol.builder.spec.model import OnFailure, Recipe, Step

MAX_BACKOFF_MS = 3_600_000
LOSS_MS, MAX_LOSS_MS, MOST_LOSSES = 100, 60_000, 10  # a killed minder: pauses before the step is run again
MAX_PAUSES = (
    32  # that wait for the boundary; a newer one supersedes the oldest, so that a bake's state stays small
)
# What such a step did before it was cut off its component's journal row says: it is run again by itself.
IDEMPOTENT = frozenset({"module", "attach"})
_ENDED_BY = {Stopping.SKIP, Stopping.RETRY, Stopping.CANCEL}


def step(recipe: Recipe, state: State, event: Event) -> tuple[State, list[Effect]]:
    """The next state and what to do. Raises Refused for a control that does not apply."""
    turn = _Turn(recipe, state)
    match event:
        case Begin():
            turn.begin(event)
        case StepEnded():
            turn.step_ended(event)
        case RetryDue():
            turn.retry_due(event)
        case BakeTimeout():
            turn.break_off(Stopping.BAKE_TIMEOUT, Code.TIMEOUT, f"timeout-ms {recipe.timeout_ms} is over")
        case Broken():
            turn.break_off(Stopping.FAIL, event.code, event.summary)
        case Recovered():
            turn.recovered(event)
        case Progress():
            turn.progress(event)
        case Remark():
            turn.remark(event)
        case Ended():
            turn.ended(event)
        case ChildRests():
            turn.child_rests(event)
        case Control():
            turn.control(event)
    return turn.state, turn.effects


def percent(recipe: Recipe, state: State) -> int:
    """`pct` of the bake: finished weight and the running step's share over the total; -1 before it began."""
    if state.phase is Phase.QUEUED and not state.begun:
        return -1
    total = sum(each.weight for each in recipe.steps)
    if not total:
        return -1
    done = sum(each.weight for each in recipe.steps[: state.cursor]) * 100
    if state.cursor < len(recipe.steps):
        done += recipe.steps[state.cursor].weight * state.step_percent
    return max(state.pct_floor, min(100, done // total))


_END_MOVES = {Phase.SUCCEEDED: Move.FINISH, Phase.FAILED: Move.FAIL, Phase.CANCELLED: Move.CANCEL}


class _Turn:
    """One event: the state as it changes, and the effects in order."""

    def __init__(self, recipe: Recipe, state: State) -> None:
        self.recipe = recipe
        self.state = state
        self.effects: list[Effect] = []

    # -- small words

    def set(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]

    def move(self, event: Move) -> None:
        self.set(phase=lifecycle.step(self.state.phase, event))

    @property
    def cursor_step(self) -> Step:
        return self.recipe.steps[self.state.cursor]

    @property
    def named(self) -> str:
        return f"step {self.state.cursor} ({self.cursor_step.name})"

    def say_step(self, summary: str, **fields: object) -> None:
        """A Status of kind step for the cursor's step; a step that never began has no attempt."""
        state = self.state
        about: dict[str, object] = {"stepindex": state.cursor, "step": self.cursor_step.name}
        if state.attempt:
            about["attempt"] = state.attempt
        self.effects.append(Say("step", summary, {**about, **fields}))

    # -- running

    def begin(self, event: Begin) -> None:
        if self.state.over:
            return
        if event.expired:
            self.end(Phase.FAILED, "expired before it could begin", code=Code.EXPIRED)
            return
        self.move(Move.BEGIN)
        self.set(begun=event.now)
        steps = len(self.recipe.steps)
        self.effects.append(Say("start", f"baking {steps} step{'s' if steps != 1 else ''}"))
        self.boundary()

    def boundary(self, *, stopping: bool = False) -> None:
        """Between two steps: rest, go on, or finish. With `stopping` no step begins: it stays there."""
        state = self.state
        self.set(pct_floor=percent(self.recipe, state))
        if state.cursor >= len(self.recipe.steps):
            self.supersede()
            failed = len(state.failed_steps)
            self.end(
                Phase.SUCCEEDED,
                f"{len(self.recipe.steps) - failed} of {len(self.recipe.steps)} steps done"
                if failed
                else "all steps done",
            )
        elif state.rest:
            self.come_to_rest()
        elif not stopping:
            self.run_attempt()

    def come_to_rest(self) -> None:
        self.effects += [ack(pause, AckOutcome.PAUSED) for pause in self.state.pauses]
        self.move(Move.REST)
        self.set(pauses=(), rest=False)
        where = f"before step {self.state.cursor} ({self.cursor_step.name})"
        self.effects.append(SayOutcome(Phase.PAUSED, f"paused {where}", stepindex=self.state.cursor))

    def run_attempt(self, *, cut: bool = False) -> None:
        """`cut`: the attempt before was cut off by a restart of the Builder."""
        attempt = self.state.attempt + 1
        since = self.state.since if cut and self.state.since else attempt - cut
        self.set(
            attempt=attempt,
            since=since,
            running=True,
            retry_waiting=False,
            stopping=None,
            step_percent=0,
            child_paused=False,
        )
        again = f", attempt {self.state.attempt}" if self.state.attempt > 1 else ""
        self.say_step(f"{self.named} begins{again}")
        self.effects.append(RunStep(self.state.cursor, attempt, since))

    def advance(self) -> None:
        """Past the cursor's step."""
        self.set(
            cursor=self.state.cursor + 1,
            attempt=0,
            running=False,
            retry_waiting=False,
            retries_used=0,
            losses=0,
            stopping=None,
            step_percent=0,
            child_paused=False,
        )

    def step_ended(self, event: StepEnded) -> None:
        state = self.state
        if not state.running:
            return
        why = state.stopping
        outcome = event.outcome
        if why in _ENDED_BY and outcome is not StepOutcome.OK:
            outcome = StepOutcome.CANCELLED
        elif why is Stopping.BAKE_TIMEOUT and outcome is not StepOutcome.OK:
            outcome = StepOutcome.TIMEOUT
        if state.child_paused and state.ending is None:
            self.effects.append(SayOutcome(Phase.RUNNING, f"{self.named}: its child has ended"))
        exitcodes = state.exitcodes
        if event.exitcode is not None:
            exitcodes = {**exitcodes, self.cursor_step.name: event.exitcode}
        self.set(running=False, stopping=None, exitcodes=exitcodes, child_paused=False)
        fields: dict[str, object] = {"outcome": str(outcome), "lastseq": event.seq}
        if event.exitcode is not None:
            fields["exitcode"] = event.exitcode
        self.say_step(f"{self.named}: {event.summary}", **fields)
        if state.ending is not None:
            self.effects.append(End(state.ending))
        elif why is Stopping.RETRY:
            self.run_attempt()
        elif outcome is StepOutcome.OK or why is Stopping.SKIP:
            self.advance()
            self.boundary(stopping=event.stopping)
        elif event.lost and self.cursor_step.retryable and state.losses < MOST_LOSSES:
            delay = min(LOSS_MS * 2**state.losses, MAX_LOSS_MS)
            self.set(losses=state.losses + 1, retry_waiting=True)
            self.effects.append(ArmRetry(state.attempt, delay))
        elif self.cursor_step.retryable and state.retries_used < self.cursor_step.retries:
            self.retry_later()
        else:
            self.step_failed(outcome, event)

    def retry_later(self) -> None:
        used = self.state.retries_used
        delay = min(self.cursor_step.retry_delay_ms * 2**used, MAX_BACKOFF_MS)
        self.set(retries_used=used + 1, retry_waiting=True)
        self.effects.append(ArmRetry(self.state.attempt, delay))

    def retry_due(self, event: RetryDue) -> None:
        if self.state.retry_waiting and self.state.attempt == event.attempt and not self.state.over:
            self.run_attempt()

    def step_failed(self, outcome: StepOutcome, event: StepEnded) -> None:
        index = self.state.cursor
        policy = self.cursor_step.on_failure
        if policy is OnFailure.CONTINUE:
            self.set(failed_steps=(*self.state.failed_steps, index))
            self.advance()
            self.boundary(stopping=event.stopping)
        elif policy is OnFailure.HOLD:
            self.move(Move.HOLD)
            self.effects += [ack(pause, AckOutcome.PAUSED) for pause in self.state.pauses]
            self.set(pauses=())
            self.effects.append(
                SayOutcome(Phase.PAUSED, f"{self.named} failed and is held", code="held", stepindex=index)
            )
        else:
            code = event.code or (Code.TIMEOUT if outcome is StepOutcome.TIMEOUT else Code.STEP_FAILED)
            self.end(Phase.FAILED, f"{self.named}: {event.summary}", code=code, stepindex=index)

    # -- the end

    def supersede(self) -> None:
        self.effects += [ack(pause, AckOutcome.SUPERSEDED) for pause in self.state.pauses]
        self.set(pauses=(), rest=False)

    def end(
        self, phase: Phase, summary: str, *, code: Code | None = None, stepindex: int | None = None
    ) -> None:
        """Decides the end. It is sent at once, or when the running attempt is over."""
        self.supersede()
        ending = Ending(phase, summary, code, stepindex)
        self.set(ending=ending, retry_waiting=False)
        if not self.state.running:
            self.effects.append(End(ending))

    def break_off(self, why: Stopping, code: Code, summary: str) -> None:
        state = self.state
        if state.phase in lifecycle.TERMINAL:
            return
        if state.ending is not None:
            # Decided, not sent: what the Builder cannot keep (Broken) turns a success or failure.
            if why is Stopping.FAIL and state.ending.phase is not Phase.CANCELLED:
                self.set(ending=Ending(Phase.FAILED, summary, code, state.cursor if state.attempt else None))
            if not state.running:
                self.effects.append(End(self.state.ending or state.ending))
            return
        index = state.cursor if state.attempt else None
        self.end(Phase.FAILED, summary, code=code, stepindex=index)
        if state.running:
            self.set(stopping=why)
            self.effects.append(StopStep(why))

    def recovered(self, event: Recovered) -> None:
        """What a restart of the Builder makes of a bake, out of its journaled state."""
        state = self.state
        if state.phase in lifecycle.TERMINAL:
            return
        if state.running:
            may = self.cursor_step.retryable or self.cursor_step.KIND in IDEMPOTENT
            again = may and state.ending is None and state.stopping is not Stopping.SKIP
            if again and not event.rerun:
                return
            if state.child_paused and state.ending is None:
                self.effects.append(SayOutcome(Phase.RUNNING, f"{self.named}: {event.summary}"))
            self.set(running=False, stopping=None, child_paused=False)
            outcome = StepOutcome.CANCELLED if state.stopping in _ENDED_BY else StepOutcome.FAILED
            self.say_step(f"{self.named}: {event.summary}", outcome=str(outcome), lastseq=event.seq)
            if state.ending is not None:
                self.effects.append(End(state.ending))
            elif state.stopping is Stopping.SKIP:
                self.advance()
                self.boundary(stopping=not event.rerun)
            elif again:
                self.run_attempt(cut=state.stopping is not Stopping.RETRY)
            else:
                self.end(
                    Phase.FAILED,
                    f"{self.named} was running when {event.summary}",
                    code=Code.BUILDER_RESTARTED,
                    stepindex=state.cursor,
                )
        elif state.ending is not None:
            self.effects.append(End(state.ending))
        elif state.retry_waiting and event.rerun:
            delay = self.cursor_step.retry_delay_ms * 2 ** max(0, state.retries_used - 1)
            self.effects.append(ArmRetry(state.attempt, min(delay, MAX_BACKOFF_MS)))
        elif state.phase is Phase.RUNNING and not state.retry_waiting and event.rerun:
            self.boundary()  # the Builder stopped between two steps

    def ended(self, event: Ended) -> None:
        ending = self.state.ending
        if ending is None or self.state.phase in lifecycle.TERMINAL:
            return
        self.move(_END_MOVES[ending.phase])
        self.effects.append(SayEnd(ending, event.lastseq, self.state.failed_steps))

    # -- progress

    def progress(self, event: Progress) -> None:
        state = self.state
        if not state.running or state.over:
            return
        if event.percent is not None:
            self.set(step_percent=max(0, min(100, event.percent)))
            self.set(pct_floor=percent(self.recipe, self.state))
        about = {"stepindex": state.cursor, "step": self.cursor_step.name, "attempt": state.attempt}
        self.effects.append(
            Say("interim", event.summary or f"{self.named} at {self.state.step_percent} %", about)
        )

    def remark(self, event: Remark) -> None:
        state = self.state
        if state.phase in lifecycle.TERMINAL:
            return
        about: dict[str, object] = {}
        if state.running:
            about = {"stepindex": state.cursor, "step": self.cursor_step.name, "attempt": state.attempt}
        self.effects.append(Say("interim", event.summary, {**about, **event.fields}))

    def child_rests(self, event: ChildRests) -> None:
        """A followed child rests or runs on: the parent says the same, its phase stays running."""
        state = self.state
        if not state.running or state.over or state.child_paused == event.paused:
            return
        if event.paused:
            self.effects += [ack(pause, AckOutcome.PAUSED) for pause in state.pauses]
            self.set(child_paused=True, pauses=(), rest=False)
            self.effects.append(
                SayOutcome(Phase.PAUSED, f"{self.named}: its child is paused", stepindex=state.cursor)
            )
        else:
            self.set(child_paused=False)
            self.effects.append(
                SayOutcome(Phase.RUNNING, f"{self.named}: its child runs on", stepindex=state.cursor)
            )

    # -- controls

    def control(self, control: Control) -> None:
        if self.state.phase in lifecycle.TERMINAL:
            raise Refused(Code.TERMINAL, "the bake has ended")
        # Until its terminal is sent a bake can be cancelled: its output may wait for ever for room.
        if self.state.ending is not None and control.verb not in (Verb.CANCEL, Verb.TERMINATE):
            raise Refused(Code.TERMINAL, "the bake is ending")
        match control.verb:
            case Verb.PAUSE:
                self.pause(control)
            case Verb.START:
                self.start(control)
            case Verb.CANCEL | Verb.TERMINATE:
                self.cancel(control)
            case Verb.SKIP_STEP:
                self.skip(control)
            case Verb.RETRY_STEP:
                self.retry(control)

    def pause(self, control: Control) -> None:
        state = self.state
        if state.phase is Phase.PAUSED or state.child_paused:
            self.effects.append(ack(control, AckOutcome.PAUSED))
        elif state.phase is Phase.HELD:
            self.set(rest=True)
            self.effects.append(ack(control, AckOutcome.PAUSED))
        else:
            pending = PendingPause(control.sent_as, control.ctrlseq, control.issuedby)
            waiting = (*state.pauses, pending)
            self.effects += [ack(pause, AckOutcome.SUPERSEDED) for pause in waiting[:-MAX_PAUSES]]
            self.set(rest=True, pauses=waiting[-MAX_PAUSES:])
            if state.running and self.cursor_step.KIND == "recipe":
                self.effects.append(TellChild(Verb.PAUSE))

    def start(self, control: Control) -> None:
        state = self.state
        if state.phase is Phase.HELD:
            raise Refused(Code.HELD, f"{self.named} failed and is held: RetryStep or SkipStep it")
        self.supersede()
        self.effects.append(ack(control, AckOutcome.RESTARTED))
        if state.phase is Phase.PAUSED:
            self.resume(f"running on at step {state.cursor}")
            self.boundary()
        elif state.running and self.cursor_step.KIND == "recipe":
            self.effects.append(TellChild(Verb.START))

    def resume(self, summary: str) -> None:
        self.move(Move.LEAVE_HOLD if self.state.phase is Phase.HELD else Move.RESUME)
        self.effects.append(SayOutcome(Phase.RUNNING, summary, stepindex=self.state.cursor))

    def cancel(self, control: Control) -> None:
        state = self.state
        self.supersede()
        self.effects.append(ack(control, AckOutcome.CANCELLED))
        if state.ending is not None and state.ending.phase is Phase.CANCELLED:
            return
        index = state.cursor if state.attempt else None
        self.end(Phase.CANCELLED, f"cancelled by {control.issuedby}", stepindex=index)
        if state.running:
            self.set(stopping=Stopping.CANCEL)
            self.effects.append(StopStep(Stopping.CANCEL))

    def skip(self, control: Control) -> None:
        state = self.state
        if state.cursor >= len(self.recipe.steps):
            raise Refused(Code.NO_STEP, "no step is left to skip")
        self.effects.append(ack(control, AckOutcome.SKIPPED))
        if state.running:
            self.stop_running(Stopping.SKIP)
            return
        if state.phase is Phase.HELD:
            self.resume(f"{self.named} is skipped")
        self.say_step(f"{self.named}: skipped by {control.issuedby}", outcome=str(StepOutcome.SKIPPED))
        self.advance()
        if self.state.phase is Phase.RUNNING:
            self.boundary()

    def retry(self, control: Control) -> None:
        state = self.state
        if state.cursor >= len(self.recipe.steps) or not state.attempt:
            raise Refused(Code.NO_STEP, "the cursor's step has not begun: there is nothing to retry")
        if not self.cursor_step.retryable:
            raise Refused(Code.NOT_RETRYABLE, f'{self.named} is not retryable="yes"')
        self.effects.append(ack(control, AckOutcome.RETRYING))
        self.set(pct_floor=0, retries_used=0)
        if state.running:
            self.stop_running(Stopping.RETRY)
            return
        if state.phase is Phase.HELD:
            self.resume(f"{self.named} is run again")
        self.run_attempt()

    def stop_running(self, why: Stopping) -> None:
        """The last word counts: a RetryStep after a SkipStep that still kills turns it, and the other way
        round.
        """
        already = self.state.stopping is not None
        self.set(stopping=why)
        if not already:
            self.effects.append(StopStep(why))
