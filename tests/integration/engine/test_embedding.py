"""EMBED_BATCH on llama.cpp: against a forward pass in numpy, alone and among others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support import bert, models
from support.engine import load, vectors, worker
from support.workerhost import Host

pytestmark = pytest.mark.engine
TEXTS = ["the cat sleeps", "paris is the capital of france", "dog", "engine crash and restart", "a red fish"]
ITEMS = [models.words(text) for text in TEXTS]
WEIGHTS = models.bert_weights()


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Row by row."""
    return np.asarray((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1))


def many(count: int, longest: int, seed: int = 1) -> list[list[int]]:
    """Items of mixed lengths of random words."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest - 1, count)
    return [[models.CLS, *rng.integers(5, len(models.WORDS), n).tolist(), models.SEP] for n in lengths]


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_vectors_are_those_of_a_forward_pass_in_numpy(host: Host, folder: Path, pooling: str) -> None:
    ref = load(host, folder / "mean.gguf")
    wanted = np.stack([bert.pooled(WEIGHTS, ids, pooling) for ids in ITEMS])
    raw = vectors(host, ref, ITEMS, pooling, normalize=False)
    assert cosines(raw, wanted).min() > 0.9999
    np.testing.assert_allclose(np.linalg.norm(raw, axis=1), np.linalg.norm(wanted, axis=1), rtol=0.01)
    unit = vectors(host, ref, ITEMS, pooling)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-5)
    assert cosines(unit, raw).min() > 0.999999


def test_the_pooling_of_a_request_is_the_requests_whatever_the_model_was_made_for(
    host: Host, folder: Path
) -> None:
    mean, cls = load(host, folder / "mean.gguf"), load(host, folder / "cls.gguf")
    for pooling in ("mean", "cls", "mean"):
        np.testing.assert_array_equal(vectors(host, mean, ITEMS, pooling), vectors(host, cls, ITEMS, pooling))


@pytest.mark.parametrize("model", ["mean.gguf", "babble.gguf"])
def test_an_items_vector_is_the_same_alone_and_among_256(host: Host, folder: Path, model: str) -> None:
    ref = load(host, folder / model)
    items = many(256, 60)
    together = vectors(host, ref, items)
    for index in (0, 1, 77, 200, 255):
        assert cosines(vectors(host, ref, [items[index]]), together[index : index + 1])[0] > 0.99999


def test_items_as_long_as_the_model_is_and_short_ones_in_one_request(host: Host, folder: Path) -> None:
    ref = load(host, folder / "mean.gguf")
    longest = [models.CLS, *[7] * 126, models.SEP]
    items = [ITEMS[0], longest, ITEMS[1], longest, longest, ITEMS[2]]
    found = vectors(host, ref, items)
    wanted = np.stack([bert.pooled(WEIGHTS, ids, "mean") for ids in items])
    assert cosines(found, wanted).min() > 0.9999


def test_a_causal_models_context_grows_with_its_items(host: Host, folder: Path) -> None:
    ref = load(host, folder / "babble.gguf")
    short, long = models.characters("short"), models.characters("x" * 1500)
    alone = vectors(host, ref, [short])
    both = vectors(host, ref, [long, short])
    assert cosines(alone, both[1:])[0] > 0.99999
    assert np.isfinite(both).all()


@pytest.mark.parametrize(
    ("config", "length", "most"),
    [
        ({}, 129, 128),
        ({"ctx_size": "64"}, 65, 64),
        ({"ubatch_size": "32"}, 33, 32),
        ({"batch_size": "16"}, 17, 16),
    ],
)
def test_an_item_that_is_too_long_is_refused_with_both_numbers(
    host: Host, folder: Path, config: dict[str, str], length: int, most: int
) -> None:
    ref = load(host, folder / "mean.gguf", **config)
    got, _ = host.embed(ref, ITEMS[0][:4], [7] * length)
    assert (got["type"], got["code"]) == ("ERR", "bad_request")
    for word in ("item 1", str(length), str(most), "128"):
        assert word in got["msg"]
    assert vectors(host, ref, [[7] * most]).shape == (1, 64)


def test_rank_is_no_pooling_for_vectors(host: Host, folder: Path) -> None:
    ref = load(host, folder / "rank.gguf")
    got, _ = host.embed(ref, ITEMS[0], pooling="rank")
    assert (got["type"], got["code"]) == ("ERR", "bad_request")
    assert "RERANK" in got["msg"]


def test_an_id_outside_the_vocabulary_never_reaches_the_engine(host: Host, folder: Path) -> None:
    ref = load(host, folder / "mean.gguf")
    for wrong in (-1, len(models.WORDS)):
        got, _ = host.embed(ref, [models.CLS, wrong])
        assert (got["type"], got["code"]) == ("ERR", "bad_request")
    assert vectors(host, ref, ITEMS).shape == (len(ITEMS), 64)


@pytest.mark.parametrize(("config", "more"), [({}, 0), ({"threads": "1"}, 0), ({"threads": "3"}, 2)])
def test_a_worker_computes_in_one_thread_unless_it_is_told(
    folder: Path, config: dict[str, str], more: int
) -> None:
    with worker() as host:
        tasks = Path(f"/proc/{host.process.pid}/task")
        before = len(list(tasks.iterdir()))
        vectors(host, load(host, folder / "mean.gguf", **config), many(64, 60))
        assert len(list(tasks.iterdir())) - before == more
