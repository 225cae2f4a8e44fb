"""The cutter's promises, as properties over whatever is fed and whenever; the clock is turned by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.builder.output.cutter import Chunk, Cutter, StreamClosed

STREAMS = ("stdout", "stderr")
feeds = st.tuples(st.just("feed"), st.sampled_from(STREAMS), st.binary(max_size=40))
looks = st.tuples(st.just("due"), st.just(""), st.just(b""))
events = st.lists(st.tuples(st.floats(0, 3), st.one_of(feeds, feeds, looks)), max_size=60)


def play(cutter: Cutter, steps: list[tuple[float, tuple[str, str, bytes]]]) -> list[tuple[float, Chunk]]:
    """Feeds and looks with time going on; at the end closes both streams. Chunks with the time they went."""
    now, out = 0.0, []
    for pause, (what, stream, data) in steps:
        now += pause
        chunks = cutter.feed(stream, data, now) if what == "feed" else cutter.due(now)
        out += [(now, chunk) for chunk in chunks]
    for stream in STREAMS:
        out += [(now, chunk) for chunk in cutter.close(stream, now)]
    return out


@given(events, st.integers(1, 30), st.sampled_from([0.0, 0.5, 1.0, 1e9]))
def test_chunks_joined_are_the_bytes_fed(steps, max_bytes, interval):
    out = play(Cutter(max_bytes, interval, begun=0.0), steps)
    for stream in STREAMS:
        fed = b"".join(data for _, (_, name, data) in steps if name == stream)
        assert b"".join(chunk.data for _, chunk in out if chunk.stream == stream) == fed


@given(events, st.integers(1, 30), st.sampled_from([0.0, 0.5, 1e9]))
def test_full_chunks_alone_are_partial_and_none_is_larger(steps, max_bytes, interval):
    for _, chunk in play(Cutter(max_bytes, interval, begun=0.0), steps):
        assert len(chunk.data) <= max_bytes
        assert chunk.partial == (len(chunk.data) == max_bytes)


@given(events, st.integers(1, 30), st.sampled_from([0.0, 0.5, 1e9]))
def test_final_comes_once_and_last_for_a_stream_that_wrote_and_never_for_a_silent_one(
    steps, max_bytes, interval
):
    out = play(Cutter(max_bytes, interval, begun=0.0), steps)
    for stream in STREAMS:
        finals = [chunk.finalchunk for _, chunk in out if chunk.stream == stream]
        wrote = any(data for _, (_, name, data) in steps if name == stream)
        assert finals == [False] * (len(finals) - 1) + [True] if wrote else finals == []


@given(events, st.integers(1, 30), st.sampled_from([0.5, 1.0, 2.0]))
def test_cadence_is_a_floor_for_chunks_neither_full_nor_final(steps, max_bytes, interval):
    last = dict.fromkeys(STREAMS, 0.0)
    for now, chunk in play(Cutter(max_bytes, interval, begun=0.0), steps):
        if not chunk.partial and not chunk.finalchunk:
            assert now >= last[chunk.stream] + interval
        last[chunk.stream] = now


@given(events, st.integers(1, 30), st.sampled_from([0.5, 1.0]))
def test_nothing_waits_beyond_next_due(steps, max_bytes, interval):
    cutter, now = Cutter(max_bytes, interval, begun=0.0), 0.0
    for pause, (what, stream, data) in steps:
        now += pause
        if what == "feed":
            cutter.feed(stream, data, now)
        due = cutter.next_due
        if due is not None:
            assert due <= now + interval
            assert all(chunk.data for chunk in cutter.due(due))
            # Float rounding aside, what was due at `due` is gone: whatever is left waits for a later moment.
            assert cutter.next_due is None or cutter.next_due >= due
            now = max(now, due)


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=20))
def test_without_a_floor_every_feed_goes_at_once(pieces):
    cutter = Cutter(1000, 0.0)
    for piece in pieces:
        assert cutter.feed("stdout", piece, 0.0) == [Chunk("stdout", piece)]
    assert cutter.next_due is None


def test_a_buffer_that_got_exactly_full_goes_as_partial_and_the_last_chunk_is_empty():
    cutter = Cutter(4, 10.0, begun=0.0)
    assert cutter.feed("stdout", b"ab", 1.0) == []
    assert cutter.feed("stdout", b"cd", 1.0) == [Chunk("stdout", b"abcd", partial=True)]
    assert cutter.close("stdout", 1.0) == [Chunk("stdout", b"", finalchunk=True)]


def test_a_feed_that_spans_several_chunks_keeps_its_rest():
    cutter = Cutter(4, 10.0, begun=0.0)
    cutter.feed("stderr", b"a", 0.0)
    chunks = cutter.feed("stderr", b"bcdefghij", 0.0)
    assert [chunk.data for chunk in chunks] == [b"abcd", b"efgh"]
    assert cutter.close("stderr", 0.0) == [Chunk("stderr", b"ij", finalchunk=True)]


def test_a_full_chunk_moves_the_cadence_on():
    cutter = Cutter(4, 1.0, begun=0.0)
    cutter.feed("stdout", b"abcde", 0.9)
    assert cutter.due(1.0) == []
    assert cutter.next_due == pytest.approx(1.9)
    assert cutter.due(1.9) == [Chunk("stdout", b"e")]


def test_after_a_long_silence_a_line_goes_at_once_and_the_next_one_waits():
    cutter = Cutter(100, 1.0, begun=0.0)
    assert cutter.feed("stdout", b"tick", 60.0) == [Chunk("stdout", b"tick")]
    assert cutter.feed("stdout", b"tock", 60.1) == []
    assert cutter.due(61.0) == [Chunk("stdout", b"tock")]


def test_a_quick_step_makes_one_chunk():
    cutter = Cutter(100, 1.0, begun=5.0)
    assert cutter.feed("stdout", b"hello", 5.01) == []
    assert cutter.close("stdout", 5.02) == [Chunk("stdout", b"hello", finalchunk=True)]


def test_streams_have_a_cadence_each_and_the_oldest_byte_goes_first():
    cutter = Cutter(100, 1.0, begun=0.0)
    cutter.feed("stderr", b"first", 0.1)
    cutter.feed("stdout", b"second", 0.2)
    cutter.feed("stderr", b" and third", 0.3)
    assert [chunk.stream for chunk in cutter.due(1.0)] == ["stderr", "stdout"]


def test_without_a_begin_the_cadence_counts_from_the_first_byte():
    cutter = Cutter(100, 1.0)
    assert cutter.feed("stdout", b"a", 100.0) == []
    assert cutter.next_due == 101.0


def test_the_last_chunk_does_not_wait_and_nothing_follows_it():
    cutter = Cutter(100, 1e9, begun=0.0)
    cutter.feed("stdout", b"x", 0.0)
    assert cutter.streams == ("stdout",)
    assert cutter.close("stdout", 0.0) == [Chunk("stdout", b"x", finalchunk=True)]
    assert cutter.close("stdout", 0.0) == []
    assert cutter.streams == ()
    with pytest.raises(StreamClosed, match="stdout"):
        cutter.feed("stdout", b"y", 0.0)


def test_many_tiny_feeds_are_kept_whole():
    cutter = Cutter(1 << 20, 1e9, begun=0.0)
    for number in range(5000):
        cutter.feed("stdout", b"%d," % number, 0.0)
    [last] = cutter.close("stdout", 0.0)
    assert last.data == b"".join(b"%d," % number for number in range(5000))


def test_a_chunk_of_exactly_one_feed_is_not_copied():
    block = bytes(65536)
    [chunk] = Cutter(65536, 1.0, begun=0.0).feed("stdout", block, 0.0)
    assert chunk.data is block


@pytest.mark.parametrize(("max_bytes", "interval"), [(0, 1.0), (-1, 1.0), (1, -0.1)])
def test_impossible_settings_are_refused(max_bytes, interval):
    with pytest.raises(ValueError, match="must be"):
        Cutter(max_bytes, interval)
