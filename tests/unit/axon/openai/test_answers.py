"""Answers: numbers that keep their order, words for why a text ended, chunks as clients expect them."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.axon.openai import answers
from bakemesh.axon.openai.refusals import Refused
from bakemesh.axon.openai.whole import finished, relevance
from bakemesh.inference import Text

LOGITS = st.floats(-1e6, 1e6)


@given(LOGITS, LOGITS)
def test_relevance_is_from_0_to_1_and_keeps_the_order(one: float, two: float) -> None:
    assert 0 <= relevance(one) <= 1
    if one <= two:
        assert relevance(one) <= relevance(two)


def test_relevance_is_the_logistic_function() -> None:
    assert relevance(0) == 0.5
    assert relevance(2.0) == pytest.approx(1 / (1 + math.exp(-2)))
    assert relevance(-2.0) == pytest.approx(1 - relevance(2.0))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("grammar_complete", "stop"),
        ("cancelled", "length"),
        ("new", "length"),
    ],
)
def test_why_it_ended(said: str, told: str) -> None:
    assert finished(Text("", said, 0, 0, "alpha")) == told


def test_a_delta_holds_what_is_new_and_nothing_else() -> None:
    chunk = answers.ChatChunk(
        id="x", created=1, model="m", choices=[answers.ChunkChoice(delta=answers.Delta(content="a"))]
    )
    found = json.loads(answers.as_json(chunk))
    assert found["choices"] == [
        {"index": 0, "delta": {"content": "a"}, "logprobs": None, "finish_reason": None}
    ]
    assert "usage" not in found


@pytest.mark.parametrize(("status", "kind"), [(400, "invalid_request_error"), (429, "rate_limit_error")])
def test_an_error_is_openais(status: int, kind: str) -> None:
    response = Refused(status, "why", code="c", param="p", retry_after_s=0.2).response()
    assert json.loads(bytes(response.body)) == {
        "error": {"message": "why", "type": kind, "param": "p", "code": "c"}
    }
    assert response.headers["retry-after"] == "1"


def test_a_401_says_how_to_come_in() -> None:
    assert Refused(401, "x").response().headers["www-authenticate"] == "Bearer"
