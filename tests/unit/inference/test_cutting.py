"""Calls are cut by items: everything once, in order, each request within half of max_payload."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.inference.asking import again, ids_of, items_of, message_of, turns_of
from bakemesh.inference.cutting import ENVELOPE, MOST_ITEMS, cut, room_for, text_size
from bakemesh.inference.errors import BadRequest
from bakemesh.inference.options import GenerateOptions, check, entries_of
from bakemesh.protocol.inference.requests import Embed, Generate
from bakemesh.protocol.message import encode

sizes = st.lists(st.integers(1, 100), max_size=200)


@given(sizes, st.integers(100, 400), st.integers(1, 20))
def test_every_item_once_in_order_within_the_room(given_sizes: list[int], room: int, most: int):
    pieces = cut(given_sizes, room, most)
    assert [item for piece in pieces for item in piece] == list(range(len(given_sizes)))
    for piece in pieces:
        assert 1 <= len(piece) <= most
        assert sum(given_sizes[item] for item in piece) <= room


@given(sizes.filter(len), st.integers(100, 400))
def test_no_two_neighbours_would_fit_into_one(given_sizes: list[int], room: int):
    pieces = cut(given_sizes, room)
    for one, next_ in itertools.pairwise(pieces):
        assert sum(given_sizes[item] for item in one) + given_sizes[next_.start] > room


@given(st.lists(st.text(max_size=300), min_size=1, max_size=40), st.integers(2048, 8192))
def test_a_request_is_never_larger_than_half_of_max_payload(texts: list[str], max_payload: int):
    given_items = items_of(texts)
    try:
        pieces = cut(given_items.sizes, room_for(max_payload))
    except BadRequest:
        assert max(given_items.sizes) > room_for(max_payload)
        return
    for piece in pieces:
        message = message_of(Embed, {**given_items.entries(piece), "class": "interactive", "priority": -100})
        final = again(message)(10**9, 1)
        payload = encode(final, id=bytes(16), created=2**60, sender=f"{'n' * 64}@{'i' * 24}")
        assert len(payload) <= max_payload // 2


def test_an_item_beyond_it_names_both_sizes():
    with pytest.raises(BadRequest, match=r"item 1 has 3,005 bytes; at most 1,536 fit"):
        cut([100, 3005], room_for(4096))
    with pytest.raises(BadRequest, match=r"all items share has 5,000 bytes; at most 1,536"):
        room_for(4096, 5000)


def test_many_small_items_are_several_requests():
    assert len(cut([1] * (3 * MOST_ITEMS + 1), 10**6)) == 4
    assert cut([], 10) == []
    assert room_for(1 << 20) == (1 << 19) - ENVELOPE


def test_sizes_are_those_of_utf8():
    assert text_size("abc", 0) == 8
    assert text_size("東京", 0) == 11
    with pytest.raises(BadRequest, match="item 7 is no valid text"):
        text_size("\ud800", 7)


def test_ids_are_rows_of_whole_numbers():
    import numpy as np

    found = items_of([[1, 2, 3], np.array([4], np.int64)])
    assert found.entries(range(2)) == {"data": np.array([1, 2, 3, 4], "<i4").tobytes(), "counts": [3, 1]}
    assert found.entries(range(1, 2))["counts"] == [1]
    assert items_of("one").texts == ["one"]
    for wrong in ([[]], [[1.5]], [[-1]], [[2**31]], [["a", 1]], [[[1]]], [None], ["a", [1]], [[True, False]]):
        with pytest.raises(BadRequest):
            items_of(wrong)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="prompt: expected text, or a row of token ids"):
        ids_of(7, "prompt")


def test_turns_are_maps_or_pairs():
    assert turns_of([("user", "a"), {"role": "assistant", "content": "b", "name": "x"}]) == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "name": "x"},
    ]
    for wrong in ([], [{"role": "user"}], [{"content": "a"}]):
        with pytest.raises(BadRequest):
            turns_of(wrong)


def test_options_become_entries_and_a_wrong_one_is_named():
    options: GenerateOptions = {
        "max_tokens": 5,
        "temperature": 1,
        "top_k": 2,
        "stop": "x",
        "json_schema": {"type": "object"},
        "work_class": "bulk",
        "priority": 3,
        "deadline_s": 1.0,
        "seed": None,
    }
    check(options, GenerateOptions)
    message = message_of(Generate, {"prompt": "p", **entries_of(options)})
    assert message.entries() == {
        "class": "bulk",
        "priority": 3,
        "attempt": 0,
        "prompt": "p",
        "maxtokens": 5,
        "temperature": 1.0,
        "topk": 2,
        "stop": ["x"],
        "jsonschema": '{"type": "object"}',
        "stream": 0,
    }
    with pytest.raises(TypeError, match="'max_token'"):
        check({"max_token": 5}, GenerateOptions)
    with pytest.raises(BadRequest, match="maxtokens"):
        message_of(Generate, {"prompt": "p", **entries_of({"max_tokens": 0})})
