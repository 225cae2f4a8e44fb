"""Encodes, kept prefixes and pairs: arithmetic on counts and ids."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.worker.engines.llama.embedding import cut
from bakemesh.worker.engines.llama.generating import kept
from bakemesh.worker.engines.llama.reranking import Frame, pairs

COUNTS = st.lists(st.integers(1, 400), min_size=1, max_size=256)
IDS = st.lists(st.integers(0, 2), max_size=60).map(lambda ids: np.asarray(ids, np.int32))


@given(COUNTS)
def test_encodes_are_all_items_in_order_and_as_full_as_may_be(counts: list[int]) -> None:
    parts = list(cut(counts, 256))
    assert [index for begin, end in parts for index in range(begin, end)] == list(range(len(counts)))
    for begin, end in parts:
        assert end - begin == 1 or sum(counts[begin:end]) <= 256
        assert end == len(counts) or sum(counts[begin : end + 1]) > 256


@given(COUNTS, st.integers(1, 8))
def test_no_encode_has_more_sequences_than_the_engine_can_tell_apart(counts: list[int], most: int) -> None:
    assert max(end - begin for begin, end in cut(counts, 256, most)) <= most


@given(IDS, IDS.filter(lambda ids: ids.size > 0), st.integers(1, 16))
def test_a_kept_prefix_is_common_a_multiple_of_the_step_and_not_the_whole_prompt(
    held: np.ndarray, prompt: np.ndarray, step: int
) -> None:
    found = kept(held, prompt, step)
    assert found % step == 0
    assert found < prompt.size
    assert (held[:found] == prompt[:found]).all()
    longer = found + step
    assert longer >= prompt.size or longer > held.size or not (held[:longer] == prompt[:longer]).all()


@given(st.lists(st.lists(st.integers(10, 99), max_size=5), min_size=1, max_size=5))
def test_pairs_are_framed_and_split_again_by_their_lengths(documents: list[list[int]]) -> None:
    frame = Frame((1,), (2, 3), (2,))
    query = np.asarray([7, 8], np.int32)
    flat = np.asarray([each for document in documents for each in document], np.int32)
    lengths, ids = pairs(frame, query, [len(document) for document in documents], flat)
    at = 0
    for length, document in zip(lengths, documents, strict=True):
        assert ids[at : at + length].tolist() == [1, 7, 8, 2, 3, *document, 2]
        at += length
    assert at == ids.size
