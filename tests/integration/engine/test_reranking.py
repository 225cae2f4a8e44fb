"""RERANK on llama.cpp: pairs as the model was trained on, against numpy; the unfaithful refused at LOAD."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support import bert, models
from support.engine import load, rerank, try_load
from support.workerhost import Host, f32

pytestmark = pytest.mark.engine
QUERY = models.words("capital of france", special=False)
DOCUMENTS = [
    models.words(text, special=False)
    for text in ("paris is the capital", "the red cat sleeps", "a", "dog runs and eats fish", "france")
]
PAIRS = [[models.CLS, *QUERY, models.SEP, *document, models.SEP] for document in DOCUMENTS]


def scores(host: Host, ref: str, documents: list[list[int]]) -> np.ndarray:
    """Of a RERANK that is answered."""
    got, data = rerank(host, ref, QUERY, documents)
    assert got["type"] == "SCORES", got
    assert data is not None
    return np.asarray(f32(data))


def test_scores_are_the_logits_of_a_forward_pass_in_numpy(host: Host, folder: Path) -> None:
    ref = load(host, folder / "rank.gguf", pooling="rank")
    weights = models.bert_weights(segments=1)
    wanted = np.asarray([bert.score(weights, pair) for pair in PAIRS])
    found = scores(host, ref, DOCUMENTS)
    np.testing.assert_allclose(found, wanted, atol=0.02)
    assert np.argsort(found).tolist() == np.argsort(wanted).tolist()


@pytest.mark.parametrize(
    ("frame", "before", "between"),
    [
        ((True, True), [models.CLS], [models.SEP, models.SEP]),
        ((True, False), [models.CLS], [models.SEP]),
        ((False, False), [], [models.SEP]),
    ],
)
def test_pairs_of_other_tokenizers_have_the_special_tokens_that_the_file_asks_for(
    host: Host, tmp_path: Path, frame: tuple[bool, bool], before: list[int], between: list[int]
) -> None:
    ref = load(host, models.bert(tmp_path / "flags.gguf", "rank", segments=1, frame=frame))
    weights = models.bert_weights(segments=1)
    wanted = [
        bert.score(weights, [*before, *QUERY, *between, *document, models.SEP]) for document in DOCUMENTS
    ]
    np.testing.assert_allclose(scores(host, ref, DOCUMENTS), wanted, atol=0.02)


def test_scores_follow_the_candidates_whatever_their_order_and_number(host: Host, folder: Path) -> None:
    ref = load(host, folder / "rank.gguf")
    found = scores(host, ref, DOCUMENTS)
    np.testing.assert_allclose(scores(host, ref, DOCUMENTS[::-1]), found[::-1], atol=0.02)
    np.testing.assert_allclose(scores(host, ref, DOCUMENTS * 40), np.tile(found, 40), atol=0.02)
    np.testing.assert_allclose(scores(host, ref, DOCUMENTS[2:3]), found[2:3], atol=0.02)


def test_two_segment_types_are_refused_unless_that_is_allowed(host: Host, folder: Path) -> None:
    path = folder / "rank-two-segments.gguf"
    got = try_load(host, path)
    assert (got["type"], got["code"]) == ("ERR", "config_invalid")
    assert "segment" in got["msg"]
    ref = load(host, path, allow_unfaithful="yes")
    weights = models.bert_weights(segments=2)
    trained = [
        bert.score(weights, pair, [0] * (len(QUERY) + 2) + [1] * (len(pair) - len(QUERY) - 2))
        for pair in PAIRS
    ]
    found = scores(host, ref, DOCUMENTS)
    np.testing.assert_allclose(found, [bert.score(weights, pair) for pair in PAIRS], atol=0.02)
    assert np.abs(found - trained).max() > 0.1, "the refusal would be for nothing"


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ("rank-without-head.gguf", "head"),
        ("mean.gguf", "head"),
        ("qwen3-bare.gguf", "head"),
        ("qwen3.gguf", "Qwen3"),
    ],
)
def test_what_cannot_rerank_is_refused_at_load(host: Host, folder: Path, model: str, word: str) -> None:
    got = try_load(host, folder / model, pooling="rank")
    assert (got["type"], got["code"]) == ("ERR", "config_invalid")
    assert word in got["msg"]
    if word == "head":
        assert try_load(host, folder / model, pooling="rank", allow_unfaithful="yes")["type"] == "ERR"


def test_a_model_that_was_loaded_for_vectors_does_not_rerank(host: Host, folder: Path) -> None:
    ref = load(host, folder / "rank.gguf", pooling="mean")
    got, _ = rerank(host, ref, QUERY, DOCUMENTS)
    assert (got["type"], got["code"]) == ("ERR", "bad_request")
    assert "pooling=rank" in got["msg"]


def test_a_pair_that_is_too_long_is_refused_by_its_number(host: Host, folder: Path) -> None:
    ref = load(host, folder / "rank.gguf")
    got, _ = rerank(host, ref, QUERY, [DOCUMENTS[0], [7] * 123])
    assert (got["type"], got["code"]) == ("ERR", "bad_request")
    for word in ("candidate 1", "129", "128"):
        assert word in got["msg"]
    assert scores(host, ref, [[7] * 122]).shape == (1,)
