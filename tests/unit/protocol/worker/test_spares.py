"""Memory of large frames: used again when nobody looks at it, and never before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.worker.frames import LENGTH, FrameReader


def read(reader: FrameReader, payload: bytes) -> memoryview:
    """Puts one frame through the reader."""
    left = memoryview(LENGTH.pack(len(payload)) + payload)
    while True:
        room = reader.room()
        count = min(len(room), len(left))
        room[:count] = left[:count]
        reader.fed(count)
        left = left[count:]
        if (found := reader.next()) is not None:
            return found


@given(st.lists(st.tuples(st.integers(70_000, 200_000), st.booleans()), min_size=1, max_size=12))
def test_a_frame_that_is_held_keeps_its_bytes_whatever_comes_after(frames):
    reader, held = FrameReader(), []
    for number, (size, keep) in enumerate(frames):
        payload = bytes([number + 1]) * size
        found = read(reader, payload)
        assert found == payload
        if keep:  # a part of it is enough
            held.append((found[size // 2 :], payload[size // 2 :]))
        del found
        for view, wanted in held:
            assert view == wanted


def test_memory_that_nobody_looks_at_is_filled_again():
    reader, kept = FrameReader(), set()
    for number in range(50):
        found = read(reader, bytes([number]) * 100_000)
        kept.add(id(found.obj))
        del found
    assert len(kept) <= 2
