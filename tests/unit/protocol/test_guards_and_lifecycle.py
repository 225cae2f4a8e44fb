"""Stream guards and lifecycle: properties stated without their tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.builder.lifecycle import Event, LifecycleError, Phase, step
from bakemesh.protocol.builder.streams import DataGuard, StatusGuard, Verdict
from bakemesh.protocol.errors import IntegrityError

ENDS = {"succeeded", "failed", "cancelled"}


@given(st.lists(st.integers(0, 6), max_size=30))
def test_what_the_data_guard_passes_is_one_to_n(seqs: list[int]) -> None:
    guard, passed, broken = DataGuard(), list[int](), False
    for seq in seqs:
        try:
            verdict = guard.accept(seq)
        except IntegrityError:
            broken = True
            continue
        assert not broken, "passed something after the latch"
        if verdict is Verdict.NEW:
            passed.append(seq)
        else:
            assert passed
            assert seq == passed[-1]
    assert passed == list(range(1, len(passed) + 1))


def test_the_latched_error_stays_the_same_and_names_both_numbers() -> None:
    guard = DataGuard()
    guard.accept(1)
    with pytest.raises(IntegrityError) as first:
        guard.accept(5)
    with pytest.raises(IntegrityError) as second:
        guard.accept(2)
    assert first.value is second.value is guard.latched
    assert "5" in str(first.value)
    assert "expected 2" in str(first.value)
    assert first.value.code == "integrity"


@given(st.lists(st.integers(1, 12), max_size=60))
def test_the_status_guard_counts_each_serial_once(serials: list[int]) -> None:
    guard, seen = StatusGuard(), set[int]()
    for serial in serials:
        verdict = guard.accept(serial)
        assert (verdict is Verdict.REPEAT) == (serial in seen)
        if verdict is Verdict.NEW:
            assert all(serial > other for other in seen)
        if verdict is Verdict.HISTORY:
            assert any(serial < other for other in seen)
        seen.add(serial)
        assert guard.highest == max(seen)
        assert guard.missing == (seen != set(range(1, max(seen) + 1)))


@given(st.permutations(range(1, 30)))
def test_in_whatever_order_nothing_is_missing_at_the_end(serials: list[int]) -> None:
    guard = StatusGuard()
    for serial in serials:
        guard.accept(serial)
    assert not guard.missing
    assert guard.complete == 29


@given(st.lists(st.sampled_from(list(Event)), max_size=40))
def test_a_bakes_life(events: list[Event]) -> None:
    phase = Phase.QUEUED
    for event in events:
        before = phase
        try:
            phase = step(phase, event)
        except LifecycleError:
            continue
        assert str(before) not in ENDS, "something followed a terminal"
        assert phase is not Phase.QUEUED, "a bake queues once"
        if str(before) in ("paused", "held"):
            assert str(phase) in {"running", "failed", "cancelled"}, "a rest ends by running on, or for good"
        if str(phase) == "succeeded":
            assert str(before) == "running", "only a running bake gets done"


@pytest.mark.parametrize("phase", [phase for phase in Phase if str(phase) not in ENDS])
def test_cancel_and_failure_end_any_bake_that_has_not_ended(phase: Phase) -> None:
    assert str(step(phase, Event.CANCEL)) == "cancelled"
    assert str(step(phase, Event.FAIL)) == "failed"


@pytest.mark.parametrize("end", sorted(ENDS))
@pytest.mark.parametrize("event", list(Event))
def test_an_end_is_final(end: str, event: Event) -> None:
    with pytest.raises(LifecycleError, match=f"{end} cannot {event}"):
        step(Phase(end), event)


def test_a_held_bake_is_left_by_its_own_verbs_alone() -> None:
    for event in Event:
        if event in (Event.LEAVE_HOLD, Event.CANCEL, Event.FAIL):
            continue
        with pytest.raises(LifecycleError):
            step(Phase.HELD, event)
