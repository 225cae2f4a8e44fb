"""Which tokens may be sampled, and how likely: top_k, top_p, min_p, temperature, one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bakemesh.worker.engines.base import Options
from bakemesh.worker.engines.llama.sampling import distribution, pick

LOGITS = arrays(np.float32, st.integers(1, 50), elements=st.floats(-20, 20, width=32))


def shares_of(logits: np.ndarray, options: Options) -> dict[int, float]:
    """By token, summing to 1."""
    ids, shares = distribution(logits, options)
    return dict(zip(ids.tolist(), (shares / shares.sum()).tolist(), strict=True))


def slowly(logits: np.ndarray, options: Options) -> dict[int, float]:
    """The same by its definition: every step sorts everything."""
    order = sorted(range(logits.size), key=lambda each: -logits[each])
    if options.top_k and options.top_k > 0:
        order = order[: options.top_k]
    if options.top_p is not None:
        weights = np.exp(logits[order].astype(float) - float(logits.max()))
        below = np.cumsum(weights) - weights
        order = [
            each for each, sum_ in zip(order, below, strict=True) if sum_ < options.top_p * weights.sum()
        ] or order[:1]
    if options.min_p:
        order = [
            each
            for each in order
            if np.exp(float(logits[each]) - float(logits.max())) >= options.min_p * 0.999999
        ]
    weights = np.exp((logits[order].astype(float) - float(logits.max())) / (options.temperature or 1.0))
    return dict(zip(order, (weights / weights.sum()).tolist(), strict=True))


@given(
    LOGITS.filter(lambda found: len(set(found.tolist())) == found.size),
    st.none() | st.integers(-1, 60),
    st.none() | st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    st.none() | st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    st.none() | st.sampled_from([0.1, 0.7, 2.0]),
)
def test_the_distribution_is_that_of_its_definition(
    logits: np.ndarray, top_k: int | None, top_p: float | None, min_p: float | None, temperature: float | None
) -> None:
    options = Options(max_tokens=1, top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature)
    found, wanted = shares_of(logits, options), slowly(logits, options)
    edge = {
        each for each in found.keys() ^ wanted.keys() if max(found.get(each, 0), wanted.get(each, 0)) > 1e-6
    }
    assert len(edge) <= 1  # rounding decides about one that is right at the edge
    if not edge:
        for token, share in wanted.items():
            assert found.get(token, 0) == pytest.approx(share, abs=1e-5)


@pytest.mark.parametrize("top_p", [0.3, 0.999])
def test_a_large_vocabulary_gives_the_same_nucleus_as_a_whole_sort(top_p: float) -> None:
    logits = np.random.default_rng(1).standard_normal(50_000).astype(np.float32) * 4
    options = Options(max_tokens=1, top_p=top_p)
    assert set(shares_of(logits, options)) == set(slowly(logits, options))


def test_what_a_grammar_refused_is_never_picked() -> None:
    logits = np.full(100, -np.inf, np.float32)
    logits[[7, 70]] = 1.0
    for options in (
        Options(max_tokens=1, temperature=5.0),
        Options(max_tokens=1, top_k=40, top_p=0.9, min_p=0.1),
    ):
        assert {pick(logits, options, chance) for chance in np.linspace(0, 1, 50)} <= {7, 70}


def test_tokens_are_picked_as_often_as_they_are_likely() -> None:
    logits = np.log(np.asarray([0.5, 0.3, 0.2], np.float32))
    picked = [
        pick(logits, Options(max_tokens=1, temperature=1.0), chance)
        for chance in np.linspace(0, 0.9999, 1000)
    ]
    assert np.bincount(picked).tolist() == pytest.approx([500, 300, 200], abs=2)
