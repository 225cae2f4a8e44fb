"""What must hold of a bake whatever happens to it, in whatever order: stated without reading the tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakemesh.builder.bake import core
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
    StopStep,
    from_json,
    to_json,
)
from bakemesh.protocol.builder.codes import Code, StepOutcome, Verb
from bakemesh.protocol.builder.lifecycle import TERMINAL, Phase
from bakemesh.protocol.builder.spec.model import AttachStep, CliStep, ModuleStep, OnFailure, Recipe, Step


def cli(index: int, **changes: Any) -> CliStep:
    return CliStep(name=f"s{index}", index=index, line=1, argv=("true",), **changes)


def recipe(*steps: Step, **changes: Any) -> Recipe:
    return Recipe(name="r", steps=steps, **changes)


class Bake:
    """A bake driven by hand: keeps every effect, and checks what must hold after every event."""

    def __init__(self, of: Recipe) -> None:
        self.recipe, self.state = of, State()
        self.effects: list[Effect] = []
        self.runs: list[tuple[int, int]] = []
        self.in_flight: tuple[int, int] | None = None
        self.resting = False
        self.pct = -1
        self.accepted: list[int] = []
        self.ctrlseq = 0
        self.retry: ArmRetry | None = None

    def do(self, event: Event) -> list[Effect]:
        before = self.state
        state, effects = core.step(self.recipe, before, event)
        if isinstance(event, StepEnded):
            self.in_flight = None
        if isinstance(event, Recovered) and event.rerun:
            self.in_flight = None
        self.state = from_json(to_json(state))  # what the journal keeps is the whole of it
        assert self.state == state
        for effect in effects:
            self._check(effect, event)
        self.effects += effects
        pct = core.percent(self.recipe, state)
        retried = isinstance(event, Control) and event.verb is Verb.RETRY_STEP
        assert retried or pct >= self.pct, f"pct fell from {self.pct} to {pct} on {event}"
        self.pct = pct
        return effects

    def _check(self, effect: Effect, event: Event) -> None:
        ended = any(isinstance(each, SayEnd) for each in self.effects)
        assert not ended, f"{effect} after the terminal"
        decided = any(isinstance(each, End) for each in self.effects)
        if isinstance(effect, RunStep):
            assert not decided, "a step starts after the end was decided"
            assert self.in_flight is None, "two steps at once"
            step = self.recipe.steps[effect.index]
            going_on = step.KIND in core.IDEMPOTENT and effect.since < effect.attempt
            assert step.retryable or effect.attempt == 1 or going_on, (
                "a step that is not retryable runs twice"
            )
            assert (effect.index, effect.attempt) not in self.runs
            self.in_flight = (effect.index, effect.attempt)
            self.runs.append(self.in_flight)
        if isinstance(effect, StopStep):
            assert self.in_flight is not None, "nothing runs that could be stopped"
        if isinstance(effect, ArmRetry):
            self.retry = effect
        if isinstance(effect, SayOutcome):
            rests = effect.phase is Phase.PAUSED
            held_to_paused = rests and self.resting and effect.code is None
            assert rests != self.resting or held_to_paused, "Paused and Restarted take turns"
            self.resting = rests
        if isinstance(effect, Say) and effect.kind == "step" and "outcome" not in effect.fields:
            assert effect.fields["attempt"] >= 1

    def control(self, verb: Verb) -> list[Effect]:
        self.ctrlseq += 1
        effects = self.do(Control(verb, str(verb), self.ctrlseq, "me"))
        self.accepted.append(self.ctrlseq)
        return effects

    def acks(self) -> list[int]:
        return [e.fields["ctrlseq"] for e in self.effects if isinstance(e, Say) and e.kind == "ack"]

    def step_ends(self, outcome: StepOutcome = StepOutcome.OK, **fields: Any) -> list[Effect]:
        return self.do(StepEnded(outcome, "ended", 0, **fields))

    def outcomes(self) -> list[str]:
        said: list[str] = []
        for effect in self.effects:
            if isinstance(effect, SayOutcome):
                said.append("paused" if effect.phase is Phase.PAUSED else "restarted")
            elif isinstance(effect, SayEnd):
                said.append(str(effect.ending.phase))
        return said


steps = st.lists(
    st.builds(
        dict,
        retryable=st.booleans(),
        retries=st.integers(0, 2),
        on_failure=st.sampled_from(OnFailure),
        weight=st.integers(1, 5),
    ),
    min_size=1,
    max_size=4,
)
events = st.lists(
    st.one_of(
        st.sampled_from(["begin", "retry", "timeout", "broken", "recovered", "remark", "ended"]),
        st.sampled_from(Verb),
        st.sampled_from(StepOutcome),
        st.integers(0, 100),
    ),
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(steps, events)
def test_any_order_of_events_keeps_the_promises(specs: list[dict[str, Any]], order: list[Any]) -> None:
    bake = Bake(recipe(*(cli(i, **spec) for i, spec in enumerate(specs))))
    begun = False
    for word in order:
        if isinstance(word, Verb):
            before = bake.state
            try:
                bake.control(word)
            except Refused:
                assert bake.state == before
        elif isinstance(word, StepOutcome):
            if bake.in_flight:
                bake.step_ends(word)
        elif isinstance(word, int):
            bake.do(Progress(word, None))
        elif word == "begin" and not begun:
            begun = True
            bake.do(Begin(1))
        elif word == "retry" and bake.retry is not None:
            bake.do(RetryDue(bake.retry.attempt))
        elif word == "timeout":
            bake.do(BakeTimeout())
        elif word == "broken":
            bake.do(Broken(Code.INTEGRITY, "broken"))
        elif word == "recovered":
            bake.do(Recovered(0))
        elif word == "remark":
            bake.do(Remark("still here"))
        elif word == "ended" and any(isinstance(e, End) for e in bake.effects):
            bake.do(Ended(0))
    # Bring it to its end: then every accepted control has been acknowledged, once.
    if not bake.state.over:
        bake.control(Verb.CANCEL)
    if bake.in_flight:
        bake.step_ends(StepOutcome.CANCELLED)
    if bake.state.phase not in TERMINAL:
        bake.do(Ended(0))
    assert bake.state.phase in TERMINAL
    assert sorted(bake.acks()) == bake.accepted
    assert sum(isinstance(e, SayEnd) for e in bake.effects) == 1
    with pytest.raises(Refused) as refused:
        bake.control(Verb.START)
    assert refused.value.code is Code.TERMINAL


def running(*made: Step) -> Bake:
    bake = Bake(recipe(*made))
    bake.do(Begin(1))
    return bake


def test_a_plain_bake_runs_its_steps_in_order() -> None:
    bake = running(cli(0), cli(1))
    bake.step_ends()
    bake.step_ends()
    bake.do(Ended(7))
    assert bake.runs == [(0, 1), (1, 1)]
    assert bake.outcomes() == ["succeeded"]
    assert bake.effects[-1] == SayEnd(bake.state.ending, 7, ())  # type: ignore[arg-type]
    assert bake.pct == 100


def test_pause_holds_at_the_boundary_and_is_acknowledged_there() -> None:
    bake = running(cli(0), cli(1))
    assert bake.control(Verb.PAUSE) == []
    said = bake.step_ends()
    assert [e.kind for e in said if isinstance(e, Say)] == ["step", "ack"]
    assert bake.state.phase is Phase.PAUSED
    bake.control(Verb.START)
    assert bake.outcomes() == ["paused", "restarted"]
    assert bake.runs == [(0, 1), (1, 1)]


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.START])
def test_a_pending_pause_is_superseded(verb: Verb) -> None:
    bake = running(cli(0), cli(1))
    bake.control(Verb.PAUSE)
    said = bake.control(verb)
    assert isinstance(said[0], Say)
    assert (said[0].fields["ctrlseq"], said[0].fields["outcome"]) == (1, "superseded")


def test_the_end_of_the_bake_supersedes_a_pending_pause() -> None:
    bake = running(cli(0))
    bake.control(Verb.PAUSE)
    said = bake.step_ends()
    assert [e.fields["outcome"] for e in said if isinstance(e, Say) and e.kind == "ack"] == ["superseded"]
    assert isinstance(said[-1], End)


def test_cancel_kills_the_running_step_and_says_so_once() -> None:
    bake = running(cli(0), cli(1))
    said = bake.control(Verb.TERMINATE)
    assert [type(e) for e in said] == [Say, StopStep]
    assert isinstance(said[0], Say)
    assert (said[0].fields["verb"], said[0].fields["outcome"]) == ("Terminate", "cancelled")
    ended = bake.step_ends(StepOutcome.FAILED, exitcode=-15)
    assert isinstance(ended[0], Say)
    assert (ended[0].fields["outcome"], ended[0].fields["exitcode"]) == ("cancelled", -15)
    bake.do(Ended(3))
    assert bake.outcomes() == ["cancelled"]


def test_a_held_step_can_be_retried_and_skipped() -> None:
    bake = running(cli(0, retryable=True, on_failure=OnFailure.HOLD), cli(1))
    bake.step_ends(StepOutcome.FAILED)
    assert bake.state.phase is Phase.HELD
    with pytest.raises(Refused) as refused:
        bake.control(Verb.START)
    assert refused.value.code is Code.HELD
    bake.control(Verb.RETRY_STEP)
    bake.step_ends(StepOutcome.FAILED)
    said = bake.control(Verb.SKIP_STEP)
    skipped = next(e for e in said if isinstance(e, Say) and e.kind == "step")
    assert skipped.fields["outcome"] == "skipped"
    assert bake.outcomes() == ["paused", "restarted", "paused", "restarted"]
    assert bake.runs == [(0, 1), (0, 2), (1, 1)]


def test_pause_on_a_held_bake_rests_after_the_retried_step() -> None:
    bake = running(cli(0, retryable=True, on_failure=OnFailure.HOLD), cli(1))
    bake.step_ends(StepOutcome.FAILED)
    said = bake.control(Verb.PAUSE)
    assert [e.fields["outcome"] for e in said if isinstance(e, Say)] == ["paused"]
    bake.control(Verb.RETRY_STEP)
    bake.step_ends()
    assert bake.state.phase is Phase.PAUSED
    assert bake.outcomes() == ["paused", "restarted", "paused"]


def test_pause_on_a_held_bake_rests_after_the_skipped_step() -> None:
    bake = running(cli(0, on_failure=OnFailure.HOLD), cli(1))
    bake.step_ends(StepOutcome.FAILED)
    bake.control(Verb.PAUSE)
    bake.control(Verb.SKIP_STEP)
    assert bake.state.phase is Phase.PAUSED
    assert bake.outcomes() == ["paused", "restarted", "paused"]
    assert bake.runs == [(0, 1)]


@pytest.mark.parametrize("retryable", [True, False])
def test_retry_needs_a_begun_step_and_the_recipes_leave(retryable: bool) -> None:
    bake = running(cli(0), cli(1, retryable=retryable))
    bake.control(Verb.PAUSE)
    bake.step_ends()
    with pytest.raises(Refused) as refused:
        bake.control(Verb.RETRY_STEP)
    assert refused.value.code is Code.NO_STEP
    bake.control(Verb.START)
    if retryable:
        bake.control(Verb.RETRY_STEP)
    else:
        with pytest.raises(Refused) as refused:
            bake.control(Verb.RETRY_STEP)
        assert refused.value.code is Code.NOT_RETRYABLE


def test_skip_on_a_paused_bake_stays_paused() -> None:
    bake = running(cli(0), cli(1), cli(2))
    bake.control(Verb.PAUSE)
    bake.step_ends()
    bake.control(Verb.SKIP_STEP)
    assert bake.state.phase is Phase.PAUSED
    bake.control(Verb.SKIP_STEP)
    with pytest.raises(Refused) as refused:
        bake.control(Verb.SKIP_STEP)
    assert refused.value.code is Code.NO_STEP
    bake.control(Verb.START)
    bake.do(Ended(0))
    assert bake.outcomes() == ["paused", "restarted", "succeeded"]


def test_automatic_retries_back_off_and_end_in_failure() -> None:
    bake = running(cli(0, retryable=True, retries=2, retry_delay_ms=100))
    delays = []
    for _ in range(2):
        said = bake.step_ends(StepOutcome.FAILED)
        armed = said[-1]
        assert isinstance(armed, ArmRetry)
        delays.append(armed.delay_ms)
        bake.do(RetryDue(armed.attempt))
    assert delays == [100, 200]
    bake.step_ends(StepOutcome.TIMEOUT)
    assert bake.state.ending is not None
    assert (bake.state.ending.code, bake.state.ending.stepindex) == (Code.TIMEOUT, 0)
    assert bake.runs == [(0, 1), (0, 2), (0, 3)]


def test_continue_notes_the_failed_step() -> None:
    bake = running(cli(0, on_failure=OnFailure.CONTINUE), cli(1))
    bake.step_ends(StepOutcome.FAILED)
    bake.step_ends()
    bake.do(Ended(0))
    assert isinstance(bake.effects[-1], SayEnd)
    assert bake.effects[-1].failedsteps == (0,)
    assert bake.outcomes() == ["succeeded"]


def test_a_restart_runs_a_retryable_step_again_and_fails_any_other() -> None:
    again = running(cli(0, retryable=True))
    again.do(Recovered(4))
    assert again.runs == [(0, 1), (0, 2)]
    never = running(cli(0))
    never.do(Recovered(4))
    assert never.state.ending is not None
    assert never.state.ending.code is Code.BUILDER_RESTARTED


def test_steps_about_a_component_are_run_again_whatever_retryable_says_and_know_what_they_go_on_with() -> (
    None
):
    module = ModuleStep(name="m", index=0, line=1, module="m", xml="<module/>")
    attach = AttachStep(name="a", index=1, line=1, module="m")
    bake = running(module, attach)
    assert bake.do(Recovered(0, rerun=False)) == [], "a stop leaves it for the next start"
    for _ in range(2):
        bake.do(Recovered(0))
    assert last_run(bake) == RunStep(0, 3, since=1)
    bake.step_ends()
    assert last_run(bake) == RunStep(1, 1, since=1)
    bake.do(Recovered(0))
    assert last_run(bake) == RunStep(1, 2, since=1)


def test_an_attempt_that_somebody_asked_for_goes_on_with_nothing() -> None:
    bake = running(ModuleStep(name="m", index=0, line=1, module="m", xml="<module/>", retryable=True))
    bake.control(Verb.RETRY_STEP)
    bake.do(Recovered(0))
    assert last_run(bake) == RunStep(0, 2, since=2), "asked for before the restart, begun after it"
    bake.do(Recovered(0))
    assert last_run(bake) == RunStep(0, 3, since=2)


def last_run(bake: Bake) -> RunStep:
    return next(effect for effect in reversed(bake.effects) if isinstance(effect, RunStep))


def test_a_stop_leaves_a_retryable_step_for_the_next_start() -> None:
    bake = running(cli(0, retryable=True))
    assert bake.do(Recovered(4, rerun=False)) == []
    assert bake.state.running


def test_a_lost_minder_is_no_attempt_of_the_steps_own() -> None:
    bake = running(cli(0, retryable=True, retries=0))
    delays = []
    for _ in range(core.MOST_LOSSES):
        armed = bake.step_ends(StepOutcome.FAILED, lost=True)[-1]
        assert isinstance(armed, ArmRetry)
        delays.append(armed.delay_ms)
        bake.do(RetryDue(armed.attempt))
    assert delays == sorted(delays)
    assert delays[0] < delays[-1] <= core.MAX_LOSS_MS
    bake.step_ends(StepOutcome.FAILED, lost=True)
    assert bake.state.ending is not None
    assert bake.state.ending.code is Code.STEP_FAILED


def test_cancel_turns_an_end_that_is_decided_and_not_sent() -> None:
    bake = running(cli(0))
    bake.step_ends()
    assert bake.state.over
    with pytest.raises(Refused) as refused:
        bake.control(Verb.PAUSE)
    assert refused.value.code is Code.TERMINAL
    assert isinstance(bake.control(Verb.CANCEL)[-1], End)
    bake.do(Ended(3))
    assert bake.outcomes() == ["cancelled"]


def test_cancel_kills_a_step_that_its_bakes_timeout_is_already_ending() -> None:
    bake = running(cli(0))
    bake.do(BakeTimeout())
    assert [type(e) for e in bake.control(Verb.CANCEL)] == [Say, StopStep]
    assert [type(e) for e in bake.control(Verb.CANCEL)] == [Say], "a second Cancel is acknowledged, no more"
    bake.step_ends(StepOutcome.CANCELLED)
    bake.do(Ended(0))
    assert bake.outcomes() == ["cancelled"]


def test_a_stop_between_two_steps_goes_on_from_there() -> None:
    bake = running(cli(0), cli(1))
    bake.do(StepEnded(StepOutcome.OK, "ended", 0, stopping=True))
    assert bake.runs == [(0, 1)]
    assert bake.do(Recovered(0, rerun=False)) == []
    bake.do(Recovered(0))
    assert bake.runs == [(0, 1), (1, 1)]


def test_a_child_that_rests_while_the_builder_restarts_is_said_to_run_on() -> None:
    bake = running(cli(0, retryable=True))
    bake.do(ChildRests(True))
    bake.do(Recovered(0))
    assert bake.outcomes() == ["paused", "restarted"]


def test_an_expired_recipe_never_begins() -> None:
    bake = Bake(recipe(cli(0)))
    bake.do(Begin(1, expired=True))
    bake.do(Ended(0))
    assert bake.runs == []
    assert bake.outcomes() == ["failed"]
    assert bake.state.ending is not None
    assert bake.state.ending.code is Code.EXPIRED


def test_what_cannot_be_kept_turns_an_end_that_is_decided() -> None:
    bake = running(cli(0))
    bake.step_ends()
    bake.do(Broken(Code.INTEGRITY, "message 1 can never be stored"))
    bake.do(Ended(1))
    assert bake.outcomes() == ["failed"]
    cancelled = running(cli(0))
    cancelled.step_ends()
    cancelled.control(Verb.CANCEL)
    cancelled.do(Broken(Code.INTEGRITY, "message 1 can never be stored"))
    cancelled.do(Ended(0))
    assert cancelled.outcomes() == ["cancelled"]
