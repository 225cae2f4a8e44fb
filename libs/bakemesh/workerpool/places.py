"""Where workers come to: the runtime folder, and a listener for each start of a worker.

Guarantees: the folder is this user's and 0700, and one pool's at a time; a socket is 0600, bound before its
worker is started, and gone when the listener is closed; what a dead host left is removed. Left out: which
path (`bakemesh.protocol.worker.place`), and who may speak (`starting`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from bakemesh.protocol.worker.ends import HostEnd
from bakemesh.protocol.worker.place import socket_path
from bakemesh.workerpool.errors import RuntimeDirRefused
from bakemesh.workerpool.wire import PipeWire, SocketWire, Wire

_BACKLOG = 16
_LOCK = "pool.lock"
_TRIES = 1000
MakeEnd = Callable[[], HostEnd]
OnWire = Callable[[Wire], None]


class Listener(Protocol):
    """Hands out a wire for each connection, until it is closed."""

    address: str

    def close(self) -> None:
        """Takes nobody any more; again: nothing."""


class Place:
    """The runtime folder, held by a lock until `close`, which takes it away."""

    def __init__(self, folder: Path, platform: str = sys.platform) -> None:
        """Raises RuntimeDirRefused."""
        self.folder, self._platform = folder, platform
        self._lock = self._taken()
        while not self._there():  # the one who had it took it away as we came
            os.close(self._lock)
            self._lock = self._taken()

    def _taken(self) -> int:
        lock = -1
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):  # taken away between two steps: made again
                _private(self.folder)
                lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                break
        if lock < 0:
            raise RuntimeDirRefused(f"runtime folder {self.folder} cannot be made, or does not stay")
        if self._platform != "win32":
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(lock)
                raise RuntimeDirRefused(
                    f"runtime folder {self.folder} is another pool's at this time: name another one"
                ) from error
        return lock

    def _there(self) -> bool:
        """Whether the lock that is held is the one that others would find."""
        try:
            return os.path.samestat(os.fstat(self._lock), os.stat(self.folder / _LOCK))
        except FileNotFoundError:
            return False

    async def listen(self, worker_id: str, make_end: MakeEnd, on_wire: OnWire) -> Listener:
        """A listener for this worker. Raises PathTooLong, OSError, RuntimeDirRefused."""
        path = socket_path(str(self.folder), worker_id, self._platform)
        if self._platform == "win32":
            return await listen_pipe(path, make_end, on_wire)
        return UnixListener(asyncio.get_running_loop(), Path(path), self.folder, make_end, on_wire)

    def close(self) -> None:
        """Lets the folder go; nothing of it is left, but for what others put there."""
        if self._lock < 0:
            return
        if self._platform != "win32":  # there a file that is open cannot be removed
            with contextlib.suppress(OSError):
                for below, _, _ in os.walk(self.folder, topdown=False):
                    if below != os.fspath(self.folder):
                        os.rmdir(below)
                os.unlink(self.folder / _LOCK)
                self.folder.rmdir()
        os.close(self._lock)
        self._lock = -1


class UnixListener:
    """See Listener."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: Path,
        root: Path,
        make_end: MakeEnd,
        on_wire: OnWire,
    ) -> None:
        self._loop, self._path, self.address = loop, path, str(path)
        self._make_end, self._on_wire = make_end, on_wire
        for folder in reversed([each for each in path.parents if root in each.parents]):
            _private(folder)
        _remove_stale(path)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.setblocking(False)
            with contextlib.suppress(OSError):
                os.fchmod(self._sock.fileno(), 0o600)  # Linux: its file is made with these rights
            self._sock.bind(self.address)
            path.chmod(0o600)
            self._sock.listen(_BACKLOG)
        except OSError:
            self._sock.close()
            raise
        loop.add_reader(self._sock.fileno(), self._acceptable)

    def _acceptable(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError:
            return  # it went away again, or there is no descriptor to be had: the start's deadline tells
        end = self._make_end()
        self._on_wire(SocketWire(self._loop, sock, end, lambda packet: None, lambda error: None))

    def close(self) -> None:
        """See Listener."""
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


class PipeListener:
    """See Listener."""

    def __init__(self, address: str, servers: list[Any]) -> None:
        self.address, self._servers = address, servers

    def close(self) -> None:
        """See Listener."""
        for server in self._servers:
            server.close()
        self._servers = []


async def listen_pipe(address: str, make_end: MakeEnd, on_wire: OnWire) -> Listener:
    """A named pipe, on Windows' own event loop. Raises OSError where the loop is another one."""
    serve = getattr(asyncio.get_running_loop(), "start_serving_pipe", None)
    if serve is None:
        raise OSError(f"{address}: named pipes need Windows' ProactorEventLoop")
    return PipeListener(address, await serve(lambda: PipeWire(make_end(), on_wire), address))


def _private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise RuntimeDirRefused(f"runtime folder {folder} is no folder of its own (a link is none)")
        if hasattr(os, "getuid") and found.st_uid != os.getuid():
            raise RuntimeDirRefused(f"runtime folder {folder} is of user {found.st_uid}, not of this one")
        if stat.S_IMODE(found.st_mode) != 0o700:
            folder.chmod(0o700)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RuntimeDirRefused(f"runtime folder {folder} does not serve: {error.strerror}") from error


def _remove_stale(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise RuntimeDirRefused(f"{path} is there, and is no socket: remove it")
        path.unlink()
