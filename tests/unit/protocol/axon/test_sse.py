"""Streams: what is encoded is decoded, however the bytes are cut; and what a hostile axon may send."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bakemesh.protocol.axon import DeserializationFailed
from bakemesh.protocol.axon.sse import DONE, DONE_EVENT, ERROR, Decoder, Event, encode

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
NASTY = st.sampled_from(
    [DONE, "", "\n", "\n\n", "\r\n", "\r", " x", "  ", "data: x", ":", "\ufeff", "event: error\n", "🌍"]
)
CUTS = st.lists(st.integers(0, 600), max_size=12)
LIMIT = 64
# Bytes that look like a stream, so that chance finds the corners of the format.
WORDS = [b"data:", b"data: ", b"event: error", b"data", b":", b"id: 1", b"[DONE]", b" ", b"x" * 20, b"x" * 70]
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n", b"\xef", b"\xbb", b"\xbf", b"\xff", b"\xf0\x9f"]
PIECES = st.sampled_from([*WORDS, *ENDS])
STREAMS = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=40).map(b"".join))


def pieces(raw: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    return [raw[start:end] for start, end in pairwise(places)]


def decoded(raw: bytes, cuts: list[int], limit: int = 1 << 20) -> tuple[list[Event], bool]:
    """The events, and whether it broke."""
    decoder = Decoder(limit)
    events: list[Event] = []
    for piece in [*pieces(raw, cuts), b""]:
        try:
            events += decoder.feed(piece)
        except DeserializationFailed:
            return events, True
    return events, False


def as_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


@given(st.lists(TEXTS | NASTY, max_size=8), CUTS, st.booleans())
@example(["\r", "\n"], [], False)  # of two texts, so two newlines
def test_what_is_encoded_is_decoded_however_it_is_cut(texts: list[str], cuts: list[int], mark: bool) -> None:
    raw = b"\xef\xbb\xbf" * mark + b"".join(map(encode, texts)) + DONE_EVENT
    events, broke = decoded(raw, cuts)
    assert not broke
    *parts, last = events
    assert last.done
    assert not any(part.done for part in parts)
    assert b"".join(part.data for part in parts).decode() == "".join(map(as_lines, texts))
    assert len(parts) == len(texts) + texts.count(DONE)


@given(TEXTS | NASTY, CUTS)
def test_an_error_is_an_event_of_its_own_name_and_never_the_end(text: str, cuts: list[int]) -> None:
    events, broke = decoded(encode(text, ERROR), cuts)
    assert (events, broke) == ([Event(as_lines(text).encode(), ERROR)], False)
    assert not events[0].done


@given(st.text(st.characters(categories=["Cs", "Lu"]), max_size=20))
def test_a_lone_surrogate_makes_no_broken_bytes(text: str) -> None:
    for name in (None, ERROR):
        encode(text, name).decode()


@given(STREAMS, CUTS)
def test_any_bytes_give_the_same_events_however_they_are_cut(raw: bytes, cuts: list[int]) -> None:
    assert decoded(raw, cuts, LIMIT) == decoded(raw, [], LIMIT)
    assert decoded(raw, list(range(len(raw))), LIMIT) == decoded(raw, [], LIMIT)


@given(STREAMS)
def test_a_mark_counts_at_the_very_start_only(raw: bytes) -> None:
    mark = b"\xef\xbb\xbf"
    if not raw.startswith(mark):
        assert decoded(mark + raw, []) == decoded(raw, [])


def test_a_mark_behind_a_line_end_is_no_mark() -> None:
    raw = b"\n\xef\xbb\xbfdata: x\n\ndata: y\n\n"
    for cuts in ([], [1], [1, 2, 3]):
        assert decoded(raw, cuts) == ([Event(b"y")], False)


@given(st.lists(STREAMS, max_size=6))
def test_memory_is_bounded_whatever_comes(chunks: list[bytes]) -> None:
    decoder = Decoder(LIMIT)
    for chunk in chunks:
        try:
            events = decoder.feed(chunk)
        except DeserializationFailed as error:
            assert str(error) == f"deserialization failed: an event is larger than {LIMIT} bytes"  # noqa: PT017
            break
        assert all(len(event.data) <= LIMIT for event in events)
        assert kept(decoder) <= 3 * LIMIT


def kept(decoder: Decoder) -> int:
    """Bytes of everything that the decoder holds."""
    return sum(len(value) for value in vars(decoder).values() if isinstance(value, bytes | bytearray | str))


@pytest.mark.parametrize(
    "endless", [b"data: x\n", b"data:\n", b"x", b"event: " + b"y" * 50 + b"\n", b"data: \r\n"]
)
def test_an_event_without_end_is_given_up_or_costs_nothing(endless: bytes) -> None:
    decoder = Decoder(LIMIT)
    most = 0
    for _ in range(1000):
        try:
            assert decoder.feed(endless) == []
        except DeserializationFailed:
            break
        most = max(most, kept(decoder))
    assert most <= 2 * LIMIT
    assert sys.getsizeof(vars(decoder)["_data"]) < 1000


def test_a_broken_stream_stays_broken_and_what_came_before_is_given() -> None:
    decoder = Decoder(20)
    assert decoder.feed(b"data: a\n\ndata: " + b"x" * 40 + b"\n\ndata: b\n\n") == [Event(b"a")]
    for chunk in (b"data: c\n\n", b""):
        with pytest.raises(DeserializationFailed, match="an event is larger than 20 bytes"):
            decoder.feed(chunk)


@pytest.mark.parametrize("size", [20, 21])
@pytest.mark.parametrize("cuts", [[], [3], [19], [20], [21]])
def test_a_line_of_just_the_limit_is_taken_and_one_more_is_not(size: int, cuts: list[int]) -> None:
    raw = b"data: " + b"x" * (size - 6) + b"\n\n"
    assert decoded(raw, cuts, 20) == (([Event(b"x" * 14)], False) if size == 20 else ([], True))


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data: a\ndata: b\n\n", [Event(b"a\nb")]),
        (b"data:a\r\rdata:b\r\n\r\n", [Event(b"a"), Event(b"b")]),
        (b": a comment\nid: 7\nretry: 1\ndata: a\n\n", [Event(b"a")]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [Event(b"a", "error"), Event(b"b")]),
        (b"event: error\n\ndata: b\n\n", [Event(b"b")]),
        (b"data\n\n", [Event(b"")]),
        (b"data\ndata\n\n", [Event(b"\n")]),
        (b"data: a\n", []),
        (b"data: a", []),
        (b"datax: a\n\n", []),
        (b"data:  a \n\n", [Event(b" a ")]),
        (b"\n\n\n", []),
        (b"event: message\ndata: [DONE]\n\n", [Event(b"[DONE]")]),
    ],
)
def test_the_rules_of_the_format(raw: bytes, events: list[Event]) -> None:
    assert decoded(raw, []) == (events, False)


def test_the_end() -> None:
    assert Decoder().feed(DONE_EVENT)[0].done
    assert [event.data for event in Decoder().feed(encode(DONE))] == [b"[DO", b"NE]"]
    assert not Event(b"[DONE]\n").done
