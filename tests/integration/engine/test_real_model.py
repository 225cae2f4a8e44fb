"""A real model through a real worker, against vectors that sentence-transformers made of the same weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from support import minilm, packages
from support.engine import load, vectors
from support.workerhost import Host

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
REFERENCE = json.loads((Path(__file__).parent / "minilm-reference.json").read_text(encoding="utf-8"))
IDS = [row["ids"] for row in REFERENCE]
WANTED = np.asarray([row["vector"] for row in REFERENCE], np.float32)


@pytest.fixture(scope="module")
def ref(host: Host) -> str:
    """MiniLM, loaded."""
    return load(host, packages.or_skip(minilm.once) / minilm.FILE)


def test_one_at_a_time_they_are_sentence_transformers_vectors(host: Host, ref: str) -> None:
    found = np.concatenate([vectors(host, ref, [ids]) for ids in IDS])
    assert (found * WANTED).sum(1).min() > 0.9999


def test_all_together_they_are_too(host: Host, ref: str) -> None:
    assert (vectors(host, ref, IDS) * WANTED).sum(1).min() > 0.9999
    many = vectors(host, ref, IDS * 20)
    assert (many * np.tile(WANTED, (20, 1))).sum(1).min() > 0.9999


def test_padding_and_missing_special_tokens_would_have_been_seen(host: Host, ref: str) -> None:
    ids, wanted = IDS[1], WANTED[1]
    wrong = [[*ids, *[0] * 20], ids[1:-1], [ids[0], *ids, ids[-1]]]
    assert (vectors(host, ref, wrong) @ wanted).max() < 0.99


def test_what_means_the_same_is_near(host: Host, ref: str) -> None:
    near = vectors(host, ref, [IDS[1], IDS[1], IDS[2]])
    assert near[0] @ near[1] > 0.9999
    assert near[0] @ near[2] < 0.5
