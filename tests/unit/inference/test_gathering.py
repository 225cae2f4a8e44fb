"""Answers are put together whole, or not at all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.inference.errors import AnswerBroken
from bakemesh.inference.gathering import Part, Rows, Stream, scores_of
from bakemesh.protocol.inference.answers import Scores, Token, Vectors

ID, OTHER = bytes(16), b"\1" * 16


def vectors(rows: np.ndarray, first: int, final: bool, request: bytes = ID) -> Vectors:
    n, dims = rows.shape
    data = rows.astype("<f4").tobytes()
    return Vectors(request=request, first=first, n=n, dims=dims, data=data, final=final, ntokens=n)


@given(st.integers(1, 20), st.integers(1, 5), st.randoms(use_true_random=False), st.integers(0, 3))
def test_rows_are_where_they_belong_in_any_order_and_twice_is_once(n, dims, random, doubles):
    whole = np.arange(n * dims, dtype=np.float32).reshape(n, dims)
    cuts = sorted({0, n, *(random.randrange(n + 1) for _ in range(3))})
    parts = [(first, whole[first:end]) for first, end in itertools.pairwise(cuts)]
    random.shuffle(parts)
    parts = [part for part in parts for _ in range(1 + (random.randrange(4) < doubles))]
    rows = Rows(n + 2)
    part = Part(rows, range(1, n + 1))
    for number, (first, each) in enumerate(parts):
        part.add(vectors(each, first, number == len(parts) - 1), "a")
    assert (rows.result()[1 : n + 1] == whole).all()
    assert part.tokens == n


def test_a_hole_is_never_passed_over():
    part = Part(Rows(3), range(3))
    part.add(vectors(np.ones((1, 2)), 0, False), "a")
    with pytest.raises(AnswerBroken, match="1 of 3 rows did not come"):
        part.add(vectors(np.ones((1, 2)), 2, True), "a")


def test_a_repetition_begins_anew():
    part = Part(Rows(2), range(2))
    part.add(vectors(np.ones((1, 2)), 0, False), "a")
    with pytest.raises(AnswerBroken, match="1 of 2 rows"):
        part.add(vectors(np.ones((1, 2)), 1, True, OTHER), "b")


def test_sizes_that_contradict_are_refused():
    wrong = vectors(np.ones((2, 2)), 0, True)
    for changes in ({"data": b"x"}, {"n": 3}, {"first": 2}, {"dims": 3}):
        with pytest.raises(AnswerBroken):
            Part(Rows(2), range(2)).add(wrong.model_copy(update=changes), "a")
    rows = Rows(2)
    Part(rows, range(1)).add(vectors(np.ones((1, 2)), 0, True), "a")
    with pytest.raises(
        AnswerBroken, match="3 numbers from node b, of 2 from node a: the alias names different"
    ):
        Part(rows, range(1, 2)).add(vectors(np.ones((1, 3)), 0, True), "b")
    with pytest.raises(AnswerBroken):
        scores_of(Scores(request=ID, n=2, data=bytes(8)), 3, "a")


def test_tokens_come_in_order_once_and_without_a_gap():
    order = Stream()
    tokens = [Token(request=ID, index=index, text="x") for index in (0, 1, 1, 0, 2)]
    assert [order.takes(token, "a") for token in tokens] == [True, True, False, False, True]
    with pytest.raises(AnswerBroken, match="token 3 of the stream did not come, 4 did"):
        order.takes(Token(request=ID, index=4, text="x"), "a")
