"""What follows an answer that is no result: never twice what may have been done, never longer than asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.inference.errors import InferenceError, NodeGone, raised
from bakemesh.inference.judging import DECLINES, LEAST_PAUSE_S, LONGEST_PAUSE_S, Then, judge, pause_s
from bakemesh.protocol.inference.errors import PERMANENT, TRANSIENT, Code, ErrorObject, error_of

BEGUN_ELSEWHERE = {
    Code.ENGINE_CRASHED,
    Code.INFERENCE_FAILED,
    Code.OOM,
    Code.DEADLINE_EXCEEDED,
    Code.CANCELLED,
}
errors = st.one_of(
    st.builds(
        lambda code, after, kind: raised(ErrorObject(code, "m", kind, True, after)),
        st.one_of(st.sampled_from(list(Code)), st.text(max_size=5)),
        st.one_of(st.none(), st.integers(0, 10**7)),
        st.sampled_from([TRANSIENT, PERMANENT]),
    ),
    st.builds(lambda reached: NodeGone("gone", "a", reached=reached), st.booleans()),
)


@given(errors, st.integers(0, 1), st.booleans(), st.booleans())
def test_what_may_have_been_begun_is_repeated_once_at_most_and_only_where_it_is_safe(
    error: InferenceError, attempt: int, repeatable: bool, begun: bool
):
    then = judge(error, attempt=attempt, repeatable=repeatable, begun=begun)
    if begun:
        assert then is Then.TELL
    if then is Then.REPEAT:
        assert attempt == 0
        assert repeatable
        assert isinstance(error, NodeGone)
        assert error.reached


@pytest.mark.parametrize("code", list(Code))
def test_only_what_was_not_begun_goes_elsewhere(code: Code):
    then = judge(raised(error_of(code, "m")), attempt=0, repeatable=True, begun=False)
    assert (then is Then.ELSEWHERE) == (code in DECLINES)
    if code in BEGUN_ELSEWHERE:
        assert then is Then.TELL


def test_a_request_that_nobody_heard_is_no_repetition():
    unheard = NodeGone("nobody", "a", reached=False)
    for attempt in (0, 1):
        assert judge(unheard, attempt=attempt, repeatable=False, begun=False) is Then.ELSEWHERE
    gone = NodeGone("silent", "a")
    assert judge(gone, attempt=0, repeatable=True, begun=False) is Then.REPEAT
    assert judge(gone, attempt=1, repeatable=True, begun=False) is Then.TELL
    assert judge(gone, attempt=0, repeatable=False, begun=False) is Then.TELL


@given(st.lists(errors, min_size=1, max_size=5), st.integers(0, 100), st.floats(0, 1))
def test_a_pause_is_as_long_as_the_first_asks_for_and_bounded(
    declined: list[InferenceError], rounds: int, draw: float
):
    pause = pause_s(declined, rounds, draw)
    passing = [error for error in declined if error.transient]
    assert (pause is None) == (not passing)
    if pause is not None:
        told = [error.retry_after_s for error in passing if error.retry_after_s is not None]
        least = min(told) if told else LEAST_PAUSE_S
        assert least <= pause <= max(least, LONGEST_PAUSE_S) * 1.25


def test_where_nobody_says_how_long_the_pauses_grow():
    busy = [raised(error_of(Code.LANE_BUSY, "m"))]
    pauses = [pause_s(busy, n, 0.0) for n in range(6)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
