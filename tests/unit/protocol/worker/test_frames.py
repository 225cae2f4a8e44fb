"""Frames: limits before memory, and whose memory a frame is."""

from __future__ import annotations

import mmap
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakemesh.protocol.worker.errors import FrameCut, FrameTooLarge, LocalError
from bakemesh.protocol.worker.frames import FrameReader, length_of
from support.workerlink import frame

EDGES = (0, 1, 65_531, 65_532, 65_533, 65_536, 131_072, 1 << 20, (1 << 20) + 1)


def through(reader: FrameReader, data: bytes, step: int) -> list[bytes]:
    """The frames of these bytes, given `step` at a time."""
    out, at = [], 0
    while at < len(data):
        room = reader.room()
        count = min(step, len(room), len(data) - at)
        assert count
        room[:count] = data[at : at + count]
        reader.fed(count)
        at += count
        while (found := reader.next()) is not None:
            out.append(bytes(found))
    return out


@pytest.mark.parametrize("step", [4093, 1 << 30])
def test_frames_at_every_edge(step: int) -> None:
    payloads = [bytes([number % 251]) * size for number, size in enumerate((*EDGES, *reversed(EDGES)))]
    reader = FrameReader(2 << 20)
    assert through(reader, b"".join(map(frame, payloads)), step) == payloads
    reader.ended()


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(1, 64))
@settings(deadline=None)
def test_what_goes_in_comes_out(payloads: list[bytes], step: int) -> None:
    reader = FrameReader()
    assert through(reader, b"".join(map(frame, payloads)), step) == payloads
    reader.ended()


@pytest.mark.parametrize("size", [1, 3, 5, 70_000])
def test_an_end_inside_a_frame_is_told(size: int) -> None:
    reader = FrameReader()
    assert through(reader, frame(bytes(80_000))[:size], 1 << 30) == []
    with pytest.raises(FrameCut):
        reader.ended()


def test_the_limit_is_checked_before_room_is_made() -> None:
    reader = FrameReader(1000)
    assert through(reader, frame(bytes(1000)), 1 << 30) == [bytes(1000)]
    tracemalloc.start()
    with pytest.raises(FrameTooLarge) as caught:
        through(reader, struct.pack("<I", 1 << 31), 1 << 30)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
    assert (caught.value.announced, caught.value.limit) == (1 << 31, 1000)


def test_large_frames_are_mapped_and_given_back_with_their_last_view() -> None:
    """So an announced frame costs what has come of it, and flat memory does not depend on the allocator."""
    reader = FrameReader()
    room = reader.room()
    room[:4] = struct.pack("<I", 32 << 20)
    reader.fed(4)
    assert reader.next() is None
    tracemalloc.start()
    room = reader.room()
    assert (len(room), tracemalloc.get_traced_memory()[1] < 10_000) == (32 << 20, True)
    tracemalloc.stop()
    assert isinstance(room.obj, mmap.mmap)
    owner = room.obj
    reader.fed(32 << 20)
    found = reader.next()
    assert found is not None
    with pytest.raises(BufferError):
        owner.close()
    room.release()
    found.release()
    del found
    owner.close()


def test_a_frame_that_the_peer_does_not_take_is_this_ends_mistake() -> None:
    assert length_of(b"1234", 4) == b"\x04\0\0\0"
    with pytest.raises(LocalError, match="5 bytes"):
        length_of(b"12345", 4)
