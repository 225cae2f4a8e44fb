"""How long a worker may take: bounds that hold whatever was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.workerpool.deadlines import Costs, Rules, Work, load_deadline, measured, overrun, run_deadline

RULES = Rules()
tokens = st.integers(1, 10_000)
seconds = st.floats(0.001, 100)


def after(*runs: tuple[Work, float]) -> Costs:
    """What is known after these runs."""
    costs = Costs()
    for work, took in runs:
        costs = measured(costs, work, took)
    return costs


def test_a_load_has_three_minutes_and_a_second_more_for_each_hundred_mib():
    assert load_deadline(RULES, 0) == 180
    assert load_deadline(RULES, 1000 * (1 << 20)) == 190


def test_until_three_measurements_a_quantum_has_a_minute_and_a_generation_ten():
    costs = Costs()
    for _ in range(3):
        assert run_deadline(RULES, costs, Work(512)) == 60
        assert run_deadline(RULES, costs, Work(512, 64)) == 600
        costs = measured(costs, Work(512), 0.1)
    assert run_deadline(RULES, costs, Work(512)) == 1  # 0.1 × 4 + 0.25, but a second at the least
    assert run_deadline(RULES, costs, Work(5120)) == pytest.approx(4.25)


@given(st.lists(st.tuples(tokens, seconds), min_size=3, max_size=20))
def test_the_same_work_again_has_four_times_as_long_as_it_just_took(runs):
    costs = after(*((Work(count), took) for count, took in runs))
    count, took = runs[-1]
    assert run_deadline(RULES, costs, Work(count)) >= min(60.0, 4 * took)
    assert run_deadline(RULES, costs, Work(count)) >= RULES.floor_s


@given(tokens, tokens, st.floats(1e-5, 1e-2), st.floats(1, 50), tokens, tokens)
def test_a_generation_of_another_shape_is_never_held_to_hang_too_early(read, made, fast, ratio, more, longer):
    # A token made costs `ratio` times a token read. What was measured has one shape, what comes another.
    slow = fast * ratio
    costs = after(*[(Work(read, made), read * fast + made * slow)] * 3)
    assert run_deadline(RULES, costs, Work(more, longer)) >= more * fast + longer * slow


@given(tokens, seconds, st.integers(4, 30))
def test_a_timeout_gives_the_next_one_more_time_and_fast_runs_take_it_back(count, took, fast_runs):
    work = Work(count)
    costs = after(*[(work, took)] * 3)
    before = run_deadline(RULES, costs, work)
    slow = overrun(costs, work, before)
    assert run_deadline(RULES, slow, work) > before
    assert slow.runs == costs.runs
    for _ in range(fast_runs):
        slow = measured(slow, work, took)
    assert run_deadline(RULES, slow, work) < run_deadline(RULES, overrun(costs, work, before), work) + 1e-9
