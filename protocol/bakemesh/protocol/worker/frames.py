"""Frames: u32 little-endian length, then the payload.

Guarantees: the limit is checked on the announced length, before a byte of the payload is read or room for it
made; a payload larger than the buffer is received straight into its own memory, without a copy. Memory of
frames beyond 1 MiB is mapped: an announced frame costs what has come of it, not what was announced, and the
memory goes back to the system with the last view of it; that of a smaller one is filled again once no view of
it is left. EOF between frames is clean; inside one it is a crash
of the peer. Left out: what a frame holds (see `packets`).
"""

from __future__ import annotations

import mmap
import struct
import sys

from bakemesh.protocol.worker.errors import FrameCut, FrameTooLarge, LocalError

MAX_FRAME = 64 << 20
SMALLEST_MAX = 4 << 10  # a peer that takes less than this cannot even be told so
LENGTH = struct.Struct("<I")
FIRST_MAX = (
    64 << 10
)  # of what comes before the handshake is done: a HELLO is small, and its sender a stranger
ROOM = 64 << 10
_SPARES = 2  # one that its reader still holds, and one to be filled
_OURS = 3  # references: the list's, the loop's, the question's own
_MAPPED = 1 << 20


def length_of(payload: bytes | memoryview, limit: int = MAX_FRAME) -> bytes:
    """The four bytes before `payload`. Raises LocalError where it is larger than the peer takes."""
    size = memoryview(payload).nbytes
    if size > limit:
        raise LocalError(f"a frame of {size} bytes; at most {limit} were agreed")
    return LENGTH.pack(size)


class FrameReader:
    """Bytes in, frames out: `recv_into(reader.room())`, `reader.fed(n)`, then `next()` until it is None."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self.limit = limit
        self._buffer = bytearray(ROOM)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._large: memoryview | None = None  # of the payload that is too large for the buffer
        self._filled = 0
        self._spares = _Spares()

    def room(self) -> memoryview:
        """Where the next bytes of the connection go; never empty once `next` answered None."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._view[self._end :]

    def fed(self, count: int) -> None:
        """`count` bytes were put into `room`."""
        if self._large is not None:
            self._filled += count
        else:
            self._end += count

    def next(self) -> memoryview | None:
        """The next whole frame, None where bytes are missing. Raises FrameTooLarge.

        What it gives stays valid: each frame has memory of its own.
        """
        if self._large is not None:
            if self._filled < len(self._large):
                return None
            found, self._large = self._large, None
            return found
        waiting = self._end - self._start
        if waiting < LENGTH.size:
            self._compact()
            return None
        (size,) = LENGTH.unpack_from(self._buffer, self._start)
        if size > self.limit:
            raise FrameTooLarge(size, self.limit)
        begin = self._start + LENGTH.size
        if self._end - begin >= size:
            self._start = begin + size
            return memoryview(bytes(self._view[begin : begin + size]))
        if LENGTH.size + size > ROOM:
            self._large = self._spares.memory(size)
            self._filled = self._end - begin
            self._large[: self._filled] = self._view[begin : self._end]
            self._start = self._end = 0
        else:
            self._compact()
        return None

    def ended(self) -> None:
        """The connection ended. Raises FrameCut where that was inside a frame."""
        if self._large is not None:
            raise FrameCut(
                f"the connection ended after {self._filled} of {len(self._large)} bytes of a frame"
            )
        if self._end > self._start:
            raise FrameCut(f"the connection ended inside a frame, {self._end - self._start} bytes into it")

    def _compact(self) -> None:
        if self._start:
            rest = self._end - self._start
            self._buffer[:rest] = self._buffer[self._start : self._end]
            self._start, self._end = 0, rest


class _Spares:
    """Memory of large frames that nobody looks at any more, to be filled again: fresh pages cost the system
    more than the bytes that come into them.

    A view of a frame holds its memory, so a reference more than ours means that it is in use.
    """

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def memory(self, size: int) -> memoryview:
        """`size` bytes that no other view shows."""
        if size > _MAPPED:
            return _mapped(size)
        for kept in self._kept:
            if size <= len(kept) <= 2 * size and sys.getrefcount(kept) == _OURS:
                return memoryview(kept)[:size]
        fresh = bytearray(size)
        self._kept = [fresh, *self._kept[: _SPARES - 1]]
        return memoryview(fresh)


def _mapped(size: int) -> memoryview:
    if hasattr(mmap, "MAP_PRIVATE"):
        return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    return memoryview(mmap.mmap(-1, size))
