"""When a worker is started again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.restart import Record
from bakemesh.workerpool.pauses import pause

draws = st.floats(0, 1, exclude_max=True)


def test_at_once_first_then_from_a_quarter_of_a_second_doubled_to_ten():
    record, found = Record(), []
    for now in range(9):
        wait, record = pause(record, ran_s=0.1, proven=False, now=float(now), draw=0.0)
        found.append(wait)
    assert found == pytest.approx([0, 0.25, 0.5, 1, 2, 4, 8, 10, 10])


@given(st.lists(st.tuples(st.floats(0, 200), st.booleans(), draws), max_size=40))
def test_what_proved_itself_is_started_at_once_and_no_pause_is_longer_than_ten_seconds(runs):
    record, now = Record(), 0.0
    for ran, proven, draw in runs:
        now += ran
        wait, record = pause(record, ran_s=ran, proven=proven, now=now, draw=draw)
        assert 0 <= wait <= 10
        if ran >= 60 or proven:
            assert wait == 0
