"""Properties of the restart policy, with the clock turned by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.restart import BUILDER, Ended, LetBe, Policy, Quarantine, Record, Restart, When, decide

draws = st.floats(0, 1, exclude_max=True)
policies = st.builds(
    Policy,
    max_restarts=st.integers(0, 5),
    window_s=st.floats(1, 100),
    stable_s=st.floats(1, 100),
    first_s=st.floats(0.01, 1),
    factor=st.floats(1, 4),
    most_s=st.floats(1, 60),
    jitter=st.floats(0, 1),
    probe_s=st.floats(1, 60),
    probe_most_s=st.floats(60, 600),
)
# (how long it ran, the jitter's draw) of each run
histories = st.lists(st.tuples(st.floats(0, 150), draws), min_size=1, max_size=40)


def play(policy: Policy, runs: list[tuple[float, float]], code: int = 1):
    """Runs a thing through its ends; yields (when it ended, decision, how long it ran)."""
    record, now = Record(), 0.0
    for ran, draw in runs:
        now += ran
        decision, record = decide(policy, record, Ended(code, ran, now, draw))
        yield now, decision, ran
        if isinstance(decision, LetBe):
            return
        now += decision.pause_s if isinstance(decision, Restart) else decision.probe_s


@given(policies, histories)
def test_pauses_stay_within_their_bounds(policy, runs):
    for _, decision, _ in play(policy, runs):
        if isinstance(decision, Restart):
            assert 0 <= decision.pause_s <= policy.most_s
        else:
            assert 0 <= decision.probe_s <= policy.probe_most_s


@given(policies, histories)
def test_never_more_restarts_in_a_window_than_the_budget(policy, runs):
    restarts = [now for now, decision, _ in play(policy, runs) if isinstance(decision, Restart)]
    for at in restarts:
        within = [other for other in restarts if at - policy.window_s < other <= at]
        assert len(within) <= policy.max_restarts


@given(policies, histories)
def test_after_a_quarantine_only_a_stable_run_earns_a_restart(policy, runs):
    quarantined = False
    for _, decision, ran in play(policy, runs):
        if quarantined and isinstance(decision, Restart):
            assert ran >= policy.stable_s
        quarantined = isinstance(decision, Quarantine)


@given(policies, st.integers(2, 30))
def test_pauses_grow_until_the_longest_while_nothing_is_stable(policy, ends):
    policy = replace(policy, never_quarantine=True)
    pauses = [decision.pause_s for _, decision, _ in play(policy, [(0.0, 0.0)] * ends)]
    assert pauses == sorted(pauses)
    assert pauses[0] == policy.first_s


@given(histories)
def test_the_builder_is_always_restarted_within_five_seconds(runs):
    for _, decision, _ in play(BUILDER, runs):
        assert isinstance(decision, Restart)
        assert decision.pause_s <= 5


@given(policies, st.floats(0, 1000), draws)
def test_a_final_code_is_let_be_whatever_happened_before(policy, ran, draw):
    policy = replace(policy, final_codes=frozenset({6}))
    decision, record = decide(policy, Record((1.0,), 3, 1), Ended(6, ran, 2000.0, draw))
    assert isinstance(decision, LetBe)
    assert record == Record((1.0,), 3, 1)


@pytest.mark.parametrize(
    ("when", "code", "restarts"),
    [
        (When.ALWAYS, 0, True),
        (When.ALWAYS, 1, True),
        (When.ON_FAILURE, 0, False),
        (When.ON_FAILURE, -9, True),
        (When.NEVER, 1, False),
    ],
)
def test_the_words_mean_what_otp_means(when, code, restarts):
    decision, _ = decide(Policy(when=when), Record(), Ended(code, 0, 0, 0))
    assert isinstance(decision, Restart) is restarts


def test_a_crash_loop_is_quarantined_probed_later_and_later_and_freed_by_a_stable_run():
    policy = Policy(max_restarts=2, jitter=0, probe_s=10, probe_most_s=15)
    shown = [decision for _, decision, _ in play(policy, [(0, 0)] * 5 + [(60, 0), (0, 0)])]
    assert [type(decision) for decision in shown] == [
        Restart,
        Restart,
        Quarantine,
        Quarantine,
        Quarantine,
        Restart,
        Restart,
    ]
    assert [d.probe_s for d in shown if isinstance(d, Quarantine)] == [10, 15, 15]
    assert shown[5] == Restart(policy.first_s)


def test_jitter_shortens_a_pause_by_its_share():
    policy = Policy(first_s=1, jitter=0.25)
    decision, _ = decide(policy, Record(), Ended(1, 0, 0, 0.5))
    assert decision == Restart(0.875)


@pytest.mark.parametrize(
    "wrong",
    [
        {"window_s": 0},
        {"max_restarts": -1},
        {"factor": 0.5},
        {"jitter": 2},
        {"first_s": 99},
        {"probe_s": 9999},
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(wrong):
    with pytest.raises(ValueError, match="restart policy"):
        Policy(**wrong)
