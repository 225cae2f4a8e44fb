"""Who is taken: limits, predictions, and that nobody is refused for what was never measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.synapse.scheduling.admission import Room, Wish, ahead_of_interactive, refusal, starts_in
from bakemesh.synapse.scheduling.demand import Demand
from bakemesh.synapse.scheduling.estimates import (
    BELIEVED_S,
    MEASUREMENTS,
    NOTHING,
    Estimates,
    Pace,
    believed_s,
    measured,
)
from bakemesh.synapse.scheduling.settings import Settings

LIMITS = Settings(bytes_in_flight=1000, items=10, tokens=100, max_queue_s=2)
EMPTY = Room(0, 0.0)
SECONDS = st.floats(0, 1000)


def wish(**values):
    """One that is taken, but for what is said."""
    return Wish(**{"size": 10, "items": 1, "tokens": 5, "left_s": 10.0, **values})


@pytest.mark.parametrize(
    ("asked", "room", "code"),
    [
        (wish(), EMPTY, None),
        (wish(size=1000, items=10, tokens=100), EMPTY, None),
        (wish(items=0), EMPTY, "bad_request"),
        (wish(items=11), EMPTY, "bad_request"),
        (wish(tokens=101), EMPTY, "bad_request"),
        (wish(size=1001), EMPTY, "bad_request"),
        (wish(left_s=0), EMPTY, "deadline_exceeded"),
        (wish(size=500), Room(501, 0.0), "queue_full"),
        (wish(), Room(0, 2.0), None),
        (wish(), Room(0, 2.1), "queue_full"),
        (wish(work_s=9), Room(0, 1.5), "deadline_exceeded"),
        (wish(work_s=9, spread=2), Room(0, 1.5), None),
    ],
)
def test_what_is_refused_and_as_what(asked, room, code):
    found = refusal(LIMITS, asked, room)
    assert (found.code if found else None) == code
    if found is not None:
        assert (found.retry_after_ms is not None) == (code == "queue_full")
        assert found.safe_to_retry


@given(st.integers(0, 2000), SECONDS, SECONDS, SECONDS)
def test_what_is_taken_fits_and_can_begin_and_end_in_time(size, starts, work, left):
    found = refusal(LIMITS, wish(size=size, work_s=work, left_s=left), Room(0, starts))
    if found is None:
        assert size <= 1000
        assert starts <= 2
        assert starts + work <= left
    elif found.retry_after_ms is not None:
        assert found.retry_after_ms >= 1


@given(st.lists(SECONDS, max_size=8), SECONDS, st.integers(0, 8), st.integers(0, 8))
def test_more_ahead_never_means_an_earlier_start_and_an_idle_lane_is_no_wait(left, ahead, lanes, idle):
    begins = starts_in(left, ahead, lanes, idle)
    assert 0 <= begins <= starts_in(left, ahead + 1, lanes, idle) + 1e-9 or lanes == 0
    if idle and not ahead:
        assert begins == 0
    if lanes == 0:
        assert begins == 0


@given(SECONDS, SECONDS)
def test_bulk_lets_interactive_wait_for_its_turns_alone(same, bulk):
    assert same <= ahead_of_interactive(same, bulk, 3) <= same * 4 / 3 + 1e-6


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(1e-4, 10)), min_size=MEASUREMENTS, max_size=40))
def test_a_pace_lies_between_what_was_measured(runs):
    pace, now = NOTHING, 0.0
    for units, took in runs:
        now += took
        pace = measured(pace, units, took, now)
    costs = [took / units for units, took in runs]
    assert min(costs) * (1 - 1e-9) <= believed_s(pace, now) <= max(costs) * (1 + 1e-9)
    assert pace.rate == pytest.approx(1 / pace.cost_s)


def test_a_pace_is_believed_from_the_third_measurement_on_and_not_for_ever():
    pace = Pace()
    for number in range(MEASUREMENTS):
        assert believed_s(pace, 10) == 0
        pace = measured(pace, 100, 1, number)
    assert believed_s(pace, 10) == pytest.approx(0.01)
    assert believed_s(pace, BELIEVED_S + 10) == 0
    assert measured(pace, 0, 1, 11) == measured(pace, 1, 0, 11) == pace


def test_a_pace_follows_what_is_new():
    pace = Pace()
    for number in range(20):
        pace = measured(pace, 100, 1, number)
    for number in range(20):
        pace = measured(pace, 100, 2, number)
    assert pace.cost_s == pytest.approx(0.02, rel=0.02)


def test_estimates_are_by_model_and_kind():
    estimates = Estimates()
    for number in range(MEASUREMENTS):
        estimates.learn("a", "embed", 100, 1.0, number)
    assert estimates.work_s("a", "embed", 50, 3) == pytest.approx(0.5)
    assert estimates.work_s("a", "rerank", 50, 3) == estimates.work_s("b", "embed", 50, 3) == 0
    assert estimates.pace("b", "embed") == NOTHING


@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=50))
def test_demand_is_of_lanes_and_fades(gaps):
    demand, now = Demand(), 0.0
    for gap in gaps:
        now += gap
        demand.used("busy", gap, now)  # a lane that does nothing else
        demand.used("idle", gap / 10, now)
        assert demand.lanes("busy", now) <= 1.3
        assert demand.lanes("idle", now) < demand.lanes("busy", now)
    assert demand.lanes("busy", now + 100) < 0.01
    assert demand.lanes("never", now) == 0


def test_a_lane_that_was_busy_for_a_while_counts_as_one():
    demand = Demand()
    for number in range(1, 101):
        demand.used("m", 1.0, float(number))
    assert demand.lanes("m", 100.0) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("wrong", [{"items": 0}, {"quantum_tokens": 0}, {"memory_bytes": 0}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Settings(**wrong)
