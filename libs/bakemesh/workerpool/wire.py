"""One connection to a worker: pieces out, packets in. Two forms behind one small interface.

`SocketWire` is a plain non-blocking socket on the loop: gathering writes, and large frames received straight
into their own memory (asyncio's streams copy them several times). `PipeWire` is an asyncio protocol, for what
has no socket: Windows' named pipes.

Guarantees: `lost` is called once, after the last whole packet was given out; nothing is given out after
`close`. Left out: deadlines; a wire that is stuck is its owner's to close.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections.abc import Callable
from typing import Protocol

from bakemesh.protocol.worker import headers
from bakemesh.protocol.worker.ends import HostEnd, Pieces
from bakemesh.protocol.worker.errors import PeerError
from bakemesh.protocol.worker.frames import ROOM
from bakemesh.protocol.worker.packets import Packet

headers.hasten()  # a pool asks often, and starts once
OnPacket = Callable[[Packet], None]
OnLost = Callable[[Exception | None], None]  # None: the worker closed it between frames
BUFFER = 4 << 20  # asked for; the kernel gives what it allows
_TURN = 8 << 20  # bytes read before others have their turn


class Wire(Protocol):
    """What the pool needs of a connection."""

    end: HostEnd
    on_packet: OnPacket
    on_lost: OnLost

    @property
    def peer_pid(self) -> int | None:
        """Who is at the other end, where the system tells."""

    def send(self, pieces: Pieces) -> None:
        """Sends, in order; keeps what does not go out at once."""

    def close(self) -> None:
        """Ends it; again: nothing."""


class SocketWire:
    """See Wire. Owns the socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        end: HostEnd,
        on_packet: OnPacket,
        on_lost: OnLost,
    ) -> None:
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, BUFFER)
        self._loop, self._sock, self.end = loop, sock, end
        self.on_packet, self.on_lost = on_packet, on_lost
        self._unsent: list[memoryview] = []
        self._open = True
        loop.add_reader(sock.fileno(), self._readable)

    @property
    def peer_pid(self) -> int | None:
        """See Wire."""
        return peer_pid(self._sock)

    def send(self, pieces: Pieces) -> None:
        """See Wire. A connection that is over is told by `on_lost` alone."""
        if not self._open:
            return
        waiting = bool(self._unsent)
        self._unsent += [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        if not waiting:
            self._flush()
            if self._open and self._unsent:
                self._loop.add_writer(self._sock.fileno(), self._writable)

    def _writable(self) -> None:
        self._flush()
        if self._open and not self._unsent:
            self._loop.remove_writer(self._sock.fileno())

    def _flush(self) -> None:
        while self._unsent:
            try:
                sent = self._sock.sendmsg(self._unsent)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                # The worker is gone. What it said before is still to be read; its end comes after that.
                self._unsent.clear()
                self._loop.remove_writer(self._sock.fileno())
                return
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.pop(0))
            if sent:
                self._unsent[0] = self._unsent[0][sent:]

    def _readable(self) -> None:
        end, taken = self.end, 0
        while self._open and taken < _TURN:
            room = end.room()
            try:
                count = self._sock.recv_into(room)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._over(error)
                return
            if count == 0:
                self._over(None)
                return
            taken += count
            end.fed(count)
            if ROOM < len(room) > count:
                continue  # of a large frame, and not the whole of it yet: it is looked for at once
            try:
                for packet in end.packets():
                    self.on_packet(packet)
                    if not self._open:
                        return
            except PeerError as error:
                self._over(error)
                return
            if count < len(room):
                return  # all that was there has come

    def _over(self, error: Exception | None) -> None:
        self.close()
        self.on_lost(error or _ended(self.end))

    def close(self) -> None:
        """See Wire."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._unsent.clear()


class PipeWire(asyncio.BufferedProtocol):
    """See Wire. `greet` is called when there is a connection, and sets the rest."""

    def __init__(self, end: HostEnd, greet: Callable[[PipeWire], None]) -> None:
        self.end, self._greet = end, greet
        self.on_packet: OnPacket = lambda packet: None
        self.on_lost: OnLost = lambda error: None
        self._transport: asyncio.Transport | None = None
        self._open = True

    @property
    def peer_pid(self) -> int | None:
        """See Wire; asyncio's pipes do not tell."""
        return None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._greet(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """asyncio's."""
        return self.end.room()

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio's."""
        if not self._open:
            return
        self.end.fed(nbytes)
        try:
            for packet in self.end.packets():
                self.on_packet(packet)
                if not self._open:
                    return
        except PeerError as error:
            self._over(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's."""
        if self._open:
            self._over(exc or _ended(self.end))

    def _over(self, error: Exception | None) -> None:
        self.close()
        self.on_lost(error)

    def send(self, pieces: Pieces) -> None:
        """See Wire."""
        if self._open and self._transport is not None:
            self._transport.writelines(pieces)

    def close(self) -> None:
        """See Wire."""
        if self._open:
            self._open = False
            if self._transport is not None:
                self._transport.abort()


def _ended(end: HostEnd) -> Exception | None:
    try:
        end.ended()
    except PeerError as error:
        return error
    return None


_LOCAL_PEERPID = 2  # macOS, at level SOL_LOCAL (0)


def peer_pid(sock: socket.socket, platform: str = sys.platform) -> int | None:
    """The pid at the other end of a Unix socket; None where the system does not tell."""
    try:
        if platform == "darwin":
            return int(sock.getsockopt(0, _LOCAL_PEERPID))
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except (OSError, AttributeError):
        return None
    pid: int = struct.unpack("3i", raw)[0]
    return pid or None
