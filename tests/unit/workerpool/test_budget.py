"""Properties of the crash budget, with the clock turned by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.workerpool.budget import (
    Lane,
    Rules,
    Standing,
    charge,
    imposed,
    lane_at,
    lane_charged,
    probe_crashed,
    probe_passed,
)

RULES = Rules()
gaps = st.lists(st.floats(0.1, 200), min_size=1, max_size=40)


def times(gaps: list[float]) -> list[float]:
    """Rising times out of the gaps between them."""
    now, out = 1000.0, []
    for gap in gaps:
        now += gap
        out.append(now)
    return out


@given(gaps)
def test_quarantined_exactly_when_three_crashes_fall_into_a_minute(gaps):
    standing, crashed = Standing(), []
    for now in times(gaps):
        standing = charge(RULES, standing, now, "embed")
        crashed.append(now)
        recent = [at for at in crashed if now - at < RULES.window_s]
        if standing.quarantined:
            assert len(recent) >= 3
            return
        assert len(recent) < 3


def test_a_quarantine_ends_by_no_time_and_no_further_crash():
    standing = Standing()
    for now in (0.0, 1.0, 2.0):
        standing = charge(RULES, standing, now, "embed")
    assert standing.probe_at == 62.0
    assert charge(RULES, standing, 1e9, "embed") == standing


@given(st.integers(1, 30))
def test_pauses_between_probes_double_up_to_a_quarter_of_an_hour(failures):
    standing, now = Standing(), 0.0
    for _ in range(3):
        standing = charge(RULES, standing, now, "generate")
    pauses = []
    for _ in range(failures):
        assert standing.probe_at is not None
        pauses.append(standing.probe_at - now)
        now = standing.probe_at
        standing = probe_crashed(RULES, standing, now)
        assert standing.crashed_in == "generate"
    assert pauses == [min(60.0 * 2**n, 900.0) for n in range(failures)]


def test_one_crash_soon_after_a_probe_is_enough_and_the_next_pause_is_longer():
    standing = imposed(RULES, 0.0)
    standing = probe_passed(RULES, standing, 60.0)
    assert not standing.quarantined
    again = charge(RULES, standing, 119.0, "embed")
    assert again.probe_at == 119.0 + 120.0


def test_a_clean_minute_after_a_probe_earns_the_whole_budget_again():
    standing = probe_passed(RULES, imposed(RULES, 0.0), 60.0)
    for now in (120.0, 121.0):
        standing = charge(RULES, standing, now, "embed")
        assert not standing.quarantined
    assert charge(RULES, standing, 122.0, "embed").probe_at == 122.0 + 60.0


@given(gaps, st.floats(0, 300))
def test_the_pool_is_degraded_from_four_crashes_in_a_minute_until_a_clean_one(gaps, later):
    lane, crashed, degraded = Lane(), [], False
    for now in times(gaps):
        if not [at for at in crashed if now - at < RULES.window_s]:
            degraded = False
        crashed.append(now)
        degraded = degraded or len([at for at in crashed if now - at < RULES.window_s]) >= 4
        lane = lane_charged(RULES, lane_at(RULES, lane, now), now)
        assert lane.degraded == degraded
    now = crashed[-1] + later
    assert lane_at(RULES, lane, now).degraded == (degraded and later < RULES.window_s)
