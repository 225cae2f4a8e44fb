"""The order of kills: each once in turn, then at random, the same for the same seed."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from support.kills import order

TARGETS = ("nats", "builder", "keeper", "shim")


@given(st.integers())
def test_each_once_in_turn_and_none_left_out_later(seed):
    begin = list(islice(order(seed, TARGETS, 0.5, 2.0), 200))
    assert begin == list(islice(order(seed, TARGETS, 0.5, 2.0), 200))
    assert {target for _, target in begin[: len(TARGETS)]} == set(TARGETS)
    assert {target for _, target in begin[len(TARGETS) :]} == set(TARGETS)
    assert all(0.5 <= pause <= 2.0 for pause, _ in begin)
