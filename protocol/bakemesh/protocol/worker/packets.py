"""Packets: a header and the raw frames that follow it, put together out of frames.

Guarantees: a header that is refused (BadHeader) or not known (Unknown) is given out only when its raw frames
were read and dropped, so that the next frame is a header again. Left out: which packet may come now (`link`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from bakemesh.protocol.worker import headers
from bakemesh.protocol.worker.errors import BadHeader, FrameCut, LocalError
from bakemesh.protocol.worker.frames import MAX_FRAME, FrameReader, length_of


class Packet(NamedTuple):
    """A header, and the bytes of its raw frame where its type has one."""

    header: Any
    data: memoryview | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A header of a known type with a wrong field: to be answered ERR."""

    error: BadHeader


class PacketReader:
    """Bytes in by `room` and `fed`, packets out by `next`."""

    def __init__(self, limit: int = MAX_FRAME, *, untyped: str | None = None) -> None:
        self.frames = FrameReader(limit)
        self.untyped = untyped  # the type of a first header that says none
        self._pending: Packet | Refused | None = None
        self._missing = 0
        self._data: memoryview | None = None

    def room(self) -> memoryview:
        """See FrameReader."""
        return self.frames.room()

    def fed(self, count: int) -> None:
        """See FrameReader."""
        self.frames.fed(count)

    def next(self) -> Packet | Refused | None:
        """The next packet, None where bytes are missing. Raises FrameTooLarge, HeaderBroken."""
        while (frame := self.frames.next()) is not None:
            if self._pending is None:
                self._take_header(frame)
            else:
                self._missing -= 1
                self._data = frame if isinstance(self._pending, Packet) else None
            if self._missing == 0:
                return self._whole()
        return None

    def ended(self) -> None:
        """The connection ended. Raises FrameCut where that was inside a packet."""
        self.frames.ended()
        if self._pending is not None:
            raise FrameCut("the connection ended where a raw frame was still to come")

    def _take_header(self, frame: memoryview) -> None:
        given = headers.decode(frame, self.untyped)
        self.untyped = None
        self._missing = headers.raw_frames(given)
        try:
            self._pending = Packet(headers.read(given))
        except BadHeader as error:
            self._pending = Refused(error)

    def _whole(self) -> Packet | Refused:
        found, data = self._pending, self._data
        assert found is not None
        self._pending = self._data = None
        if isinstance(found, Packet) and data is not None and not isinstance(found.header, headers.Unknown):
            return Packet(found.header, data)
        return found


def pieces(
    header: Any, data: bytes | memoryview | None = None, limit: int = MAX_FRAME
) -> list[bytes | memoryview]:
    """What goes on the wire, for one gathering write. Raises LocalError."""
    if (data is not None) != bool(header.RAW):
        raise LocalError(f"{header.TYPE} is followed by {header.RAW} raw frames")
    text = headers.write(header)
    out: list[bytes | memoryview] = [length_of(text, limit) + text]
    if data is not None:
        out += [length_of(data, limit), data]
    return out
