"""The worker's end of the connection: a Unix socket, on Windows a named pipe.

Guarantees: every byte that was received is handed on, and `recv_now` never waits. Left out: what the bytes
mean. The pipe was not run on Windows; its reading and writing are tested on other files.
"""

from __future__ import annotations

import contextlib
import io
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

Piece = bytes | memoryview
_BUFFER = 4 << 20  # asked for; the kernel gives what it allows


class Channel(Protocol):
    """Bytes both ways."""

    def recv_into(self, room: memoryview) -> int:
        """Waits for bytes; how many came, 0 at the end."""

    def recv_now(self, room: memoryview) -> int | None:
        """The same without waiting; None: nothing is there."""

    def send(self, pieces: Sequence[Piece]) -> None:
        """Writes all of them, in order."""

    def end_waiting(self) -> None:
        """Makes a `recv_into` that waits give 0. Called from a signal handler."""

    def fileno(self) -> int:
        """What can be polled; -1: nothing."""


class SocketChannel:
    """Over a stream socket that blocks."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def recv_into(self, room: memoryview) -> int:
        """See Channel. A connection that was reset has ended."""
        try:
            return self._sock.recv_into(room)
        except ConnectionResetError:
            return 0

    def recv_now(self, room: memoryview) -> int | None:
        """See Channel."""
        try:
            return self._sock.recv_into(room, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return 0

    def send(self, pieces: Sequence[Piece]) -> None:
        """See Channel. Large pieces go from where they are, without a copy."""
        if len(pieces) == 1:
            count = self._sock.send(pieces[0])
            if count == len(pieces[0]):
                return
            pieces = [memoryview(pieces[0])[count:]]
        left = [memoryview(each) for each in pieces if len(each)]
        while left:
            count = self._sock.sendmsg(left)
            while left and count >= left[0].nbytes:
                count -= left.pop(0).nbytes
            if count:
                left[0] = left[0].cast("B")[count:]

    def end_waiting(self) -> None:
        """See Channel."""
        try:
            self._sock.shutdown(socket.SHUT_RD)
        except OSError:
            return  # it ended already

    def fileno(self) -> int:
        """See Channel."""
        return self._sock.fileno()


class PipeChannel:
    """Over a raw file that is read and written, as a named pipe is. `waiting`: how many bytes it holds."""

    def __init__(self, file: io.RawIOBase, waiting: Callable[[], int]) -> None:
        self._file, self._waiting = file, waiting

    def recv_into(self, room: memoryview) -> int:
        """See Channel."""
        try:
            return self._file.readinto(room) or 0
        except BrokenPipeError:
            return 0

    def recv_now(self, room: memoryview) -> int | None:
        """See Channel."""
        try:
            waiting = self._waiting()
        except BrokenPipeError:
            return 0
        return self.recv_into(room[:waiting]) if waiting else None

    def send(self, pieces: Sequence[Piece]) -> None:
        """See Channel."""
        for piece in pieces:
            left = memoryview(piece).cast("B")
            while left:
                left = left[self._file.write(left) or 0 :]

    def end_waiting(self) -> None:
        """Nothing: there is no TERM on Windows."""

    def fileno(self) -> int:
        """See Channel."""
        return -1


def connect(address: str) -> Channel:
    """The connection to the host that listens there. Raises OSError."""
    if sys.platform == "win32":
        import _winapi
        import msvcrt

        file = open(address, "r+b", buffering=0)  # noqa: SIM115  # it lives as long as the process
        handle = msvcrt.get_osfhandle(file.fileno())
        return PipeChannel(file, lambda: _winapi.PeekNamedPipe(handle, 0)[0])
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(OSError):  # a whole batch of vectors goes out at once, if the kernel allows it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    sock.connect(address)
    return SocketChannel(sock)
