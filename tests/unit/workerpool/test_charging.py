"""Who pays for a dead worker, and what is run again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.workerpool.charging import Again, Cause, Facts, judge

STAGES = ["start", "idle", "ping", "load", "embed", "rerank", "generate", "info", "unload"]
facts = st.builds(
    Facts,
    cause=st.sampled_from(Cause),
    doing=st.sampled_from(STAGES),
    attempt=st.integers(0, 1),
    callers=st.integers(1, 3),
    suspect=st.booleans(),
    seen=st.booleans(),
    gone=st.booleans(),
    may_repeat=st.booleans(),
    probe=st.booleans(),
)


@given(facts)
def test_run_again_only_after_a_crash_of_a_first_run_that_somebody_waits_for_and_saw_nothing_of(each):
    if judge(each).again is not Again.NO:
        assert each.cause in (Cause.CRASH, Cause.VIOLATION)
        assert each.attempt == 0
        assert each.may_repeat or each.callers > 1
        assert not each.seen
        assert not each.gone
        assert not each.probe


@given(facts)
def test_closing_the_pool_costs_nobody_anything(each):
    if each.cause is Cause.CLOSED:
        verdict = judge(each)
        assert not verdict.charge
        assert not verdict.charge_lane
        assert not verdict.poison
        assert verdict.again is Again.NO


@given(facts)
def test_what_ran_no_model_charges_none(each):
    if each.doing in ("start", "idle", "ping"):
        assert not judge(each).charge


@given(facts)
def test_poison_ran_alone_for_the_second_time(each):
    verdict = judge(each)
    if verdict.poison:
        assert each.callers == 1
        assert each.attempt > 0 or each.suspect
        assert each.doing in ("embed", "rerank", "generate")
        assert not verdict.charge  # it was charged the first time
        assert verdict.again is Again.NO


def life(doing: str, causes: list[Cause], callers: int = 1) -> int:
    """How often one request, sent again and again by its caller, charges its model."""
    charges, suspect, poisoned = 0, False, False
    for cause in causes:
        if poisoned:
            break  # refused
        attempt = 0
        while True:
            verdict = judge(
                Facts(cause=cause, doing=doing, attempt=attempt, callers=callers, suspect=suspect)
            )
            charges += verdict.charge
            suspect, poisoned = suspect or verdict.suspects, verdict.poison
            if verdict.again is Again.NO:
                break
            attempt, callers = attempt + 1, 1
    return charges


@given(
    st.sampled_from(["embed", "rerank", "generate"]),
    st.lists(st.sampled_from([Cause.CRASH, Cause.VIOLATION, Cause.TIMEOUT]), min_size=1, max_size=10),
)
def test_one_request_however_often_it_is_sent_charges_its_model_once(doing, causes):
    assert life(doing, causes) == 1


def test_a_batch_is_one_charge_and_its_callers_are_run_apart():
    verdict = judge(Facts(cause=Cause.CRASH, doing="embed", callers=3))
    assert verdict.charge
    assert verdict.again is Again.APART
    assert verdict.suspects


@given(st.booleans())
def test_a_batch_is_run_apart_also_where_somebody_upstream_repeats(may_repeat):
    verdict = judge(Facts(cause=Cause.CRASH, doing="embed", callers=2, may_repeat=may_repeat))
    assert verdict.again is Again.APART


def test_each_load_that_crashes_is_charged_and_no_request_is_poison_for_it():
    for attempt in (0, 1):
        verdict = judge(Facts(cause=Cause.CRASH, doing="load", attempt=attempt))
        assert verdict.charge
        assert not verdict.poison
        assert not verdict.suspects
