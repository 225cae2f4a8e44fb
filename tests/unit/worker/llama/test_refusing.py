"""What is refused before llama.cpp sees it: unfaithful rerankers, options that mean nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bakemesh.worker.engines.base import EngineError, Options
from bakemesh.worker.engines.llama import faith, sampling
from bakemesh.worker.engines.llama.header import Header

RERANKER = Header(
    architecture="bert",
    pooling="rank",
    causal=False,
    tokenizer="t5",
    segments=1,
    head=True,
    labels=1,
    rerank_template=False,
    chat_template=None,
    parts=1,
)
UNFAITHFUL = {
    "two segment types": (replace(RERANKER, segments=2), "2 segment types"),
    "Qwen3": (replace(RERANKER, architecture="qwen3", causal=True), "Qwen3"),
    "a template": (replace(RERANKER, rerank_template=True), "template"),
    "a causal model": (replace(RERANKER, architecture="llama", causal=True), "template"),
    "labels": (replace(RERANKER, labels=3), "3 labels"),
}


def test_a_faithful_reranker_is_not_refused() -> None:
    assert faith.refusal(RERANKER, allow_unfaithful=False) is None


@pytest.mark.parametrize("kind", UNFAITHFUL)
def test_an_unfaithful_reranker_loads_only_where_that_is_said(kind: str) -> None:
    header, why = UNFAITHFUL[kind]
    said = faith.refusal(header, allow_unfaithful=False)
    assert said is not None
    assert why in said
    assert "allow_unfaithful=yes" in said
    assert faith.refusal(header, allow_unfaithful=True) is None


@pytest.mark.parametrize("allowed", [False, True])
def test_a_missing_head_is_refused_always(allowed: bool) -> None:
    said = faith.refusal(replace(RERANKER, head=False), allow_unfaithful=allowed)
    assert said is not None
    assert "cls.output.weight" in said


@pytest.mark.parametrize(
    ("asked", "pooling", "head", "wants"),
    [
        ("rank", "mean", False, True),
        ("mean", "rank", True, False),
        (None, "rank", True, True),
        (None, "mean", True, False),
        (None, None, True, True),
        (None, None, False, False),
    ],
)
def test_what_load_asks_decides_over_what_the_file_says(
    asked: str | None, pooling: str | None, head: bool, wants: bool
) -> None:
    assert faith.wants_rank(replace(RERANKER, pooling=pooling, head=head), asked) is wants


@pytest.mark.parametrize(
    ("options", "greedy"),
    [
        (Options(max_tokens=1), True),
        (Options(max_tokens=1, seed=3), True),
        (Options(max_tokens=1, temperature=0.0, top_k=40), True),
        (Options(max_tokens=1, temperature=0.7), False),
        (Options(max_tokens=1, top_p=0.9), False),
    ],
)
def test_greedy_unless_a_way_to_sample_is_given(options: Options, greedy: bool) -> None:
    assert sampling.is_greedy(options) is greedy


@pytest.mark.parametrize(
    "options",
    [
        Options(max_tokens=1, temperature=-0.1),
        Options(max_tokens=1, top_p=1.1),
        Options(max_tokens=1, min_p=-1.0),
        Options(max_tokens=1, top_k=-2),
        Options(max_tokens=1, grammar="root ::= [a]", json_schema="{}"),
    ],
)
def test_options_that_mean_nothing_are_bad_requests(options: Options) -> None:
    with pytest.raises(EngineError) as refused:
        sampling.check(options)
    assert refused.value.code == "bad_request"


def test_without_a_seed_or_with_minus_one_it_is_another_text_each_time() -> None:
    assert sampling.seed_of(Options(max_tokens=1, seed=7)) == 7
    assert sampling.seed_of(Options(max_tokens=1, seed=-2)) == 2**64 - 2
    assert sampling.seed_of(Options(max_tokens=1, seed=-1)) is None
    assert sampling.seed_of(Options(max_tokens=1)) is None
