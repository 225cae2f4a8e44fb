"""One life of the keeper process: started, asked to start steps, ended.

Guarantees: at most `WINDOW` requests wait in the keeper at a time, the others wait here, so that the socket
never fills, few descriptors are in flight, and a caller who gave up before its turn has started nothing.
Never blocks: a full socket is waited for by the event loop. Leaves out: what to do when the keeper died
(`keeper.py`).
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import os
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakemesh.processes import frames
from bakemesh.processes.errors import KeeperFailed, Refusal, SpawnRefused
from bakemesh.processes.minded import Minded

WINDOW = 32
READY_S = 20.0
AGAIN_S = 0.05


@dataclass(slots=True)
class Request:
    """A start that waits for its turn; `theirs` is the minder's end of its own connection."""

    minded: Minded
    frame: bytes
    stdio: str
    fds: tuple[int, ...]
    theirs: socket.socket


class Link:
    """The connection to one keeper process, and the process."""

    def __init__(self, on_frame: Callable[[frames.Frame], None]) -> None:
        self._on_frame = on_frame
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Request] = deque()
        self._unanswered: set[int] = set()
        self._writer_added = False
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self.ended = asyncio.Event()  # the process is dead and reaped

    @property
    def pid(self) -> int:
        """The keeper's pid."""
        assert self._process is not None
        return self._process.pid

    async def open(
        self,
        program: Path,
        python: Sequence[str],
        environment: Mapping[str, str],
        options: Sequence[str],
        ready_s: float = READY_S,
    ) -> None:
        """Starts the keeper and waits until it takes requests. `python`: the interpreter and its flags.
        Raises KeeperFailed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                # Without a preexec_fn this is a vfork: it costs the same however large this process is.
                self._process = subprocess.Popen(  # noqa: ASYNC220 - a millisecond, once in a keeper's life
                    [*python, str(program), str(theirs.fileno()), *options],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=dict(environment),
                    start_new_session=True,
                )
            except OSError as wrong:
                ours.close()
                raise KeeperFailed(f"cannot start the keeper with {python[0]!r}: {wrong}") from wrong
        self._socket = ours
        ours.setblocking(False)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._on_end)
        self._loop.add_reader(ours, self._readable)
        try:
            async with asyncio.timeout(ready_s):
                await self._ready
        except (TimeoutError, asyncio.CancelledError) as wrong:
            self.kill()
            await self.ended.wait()
            if isinstance(wrong, asyncio.CancelledError):
                raise
            raise KeeperFailed(f"the keeper ({program}) did not answer within {ready_s:.0f} s") from wrong
        except KeeperFailed:
            self.kill()
            await self.ended.wait()
            code = self._process.returncode
            raise KeeperFailed(
                f"the keeper ({program}) ended with {code} at its start; its last words are on stderr"
            ) from None

    def submit(self, request: Request) -> None:
        """Takes a start; it is sent when it is its turn."""
        self._waiting.append(request)
        self._pump()

    def withdraw(self, minded: Minded) -> bool:
        """Takes a start back; False where it was sent already."""
        for request in self._waiting:
            if request.minded is minded:
                self._waiting.remove(request)
                request.theirs.close()
                return True
        return False

    def drop(self, minded: Minded) -> None:
        """Asks the keeper to kill a minder that does not listen; again later where the socket is full."""
        if self._socket is None or minded.over.is_set():
            return
        try:
            self._socket.send(frames.drop(minded.ident))
        except (BlockingIOError, InterruptedError):
            self._loop.call_later(AGAIN_S, self.drop, minded)
        except OSError:
            pass  # the keeper is dying, and everything below it too

    def answered(self, minded: Minded) -> None:
        """A start was answered, or nobody waits for it any more: the next may go."""
        self._unanswered.discard(minded.ident)
        self._pump()

    def take_unsent(self) -> list[Request]:
        """The starts that never reached the keeper: another one may have them."""
        unsent = list(self._waiting)
        self._waiting.clear()
        return unsent

    def shut(self) -> None:
        """Ends the connection: the keeper kills what is left and ends. What waits here goes on waiting."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None
        if not self._ready.done():
            self._ready.set_exception(KeeperFailed("the keeper ended at its start"))

    def kill(self) -> None:
        """KILL to the keeper process."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    # The loop's side

    def _on_end(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._readable()  # its last words may still be there
        self.shut()
        self.ended.set()

    def _readable(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(64 * 1024)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionResetError:
                continue  # it ended with requests unread: what it said before is still to be read
            if not data:
                self.shut()  # the process may take a moment more; `ended` waits for it
                return
            frame = frames.parse(data)
            if isinstance(frame, frames.Ready):
                if not self._ready.done():
                    self._ready.set_result(None)
            else:
                self._on_frame(frame)

    def _pump(self) -> None:
        while self._waiting and self._socket is not None and len(self._unanswered) < WINDOW:
            request = self._waiting[0]
            try:
                self._send(self._socket, request)
            except (BlockingIOError, InterruptedError):
                if not self._writer_added:
                    self._writer_added = True
                    self._loop.add_writer(self._socket, self._writable)
                return
            except OSError as wrong:
                if wrong.errno == errno.ETOOMANYREFS and self._unanswered:
                    return  # too many descriptors in flight: the next answer frees some
                if wrong.errno in (errno.EPIPE, errno.ECONNRESET):
                    return  # the keeper is dying: nothing of it was sent, and the next one has it
                self._waiting.popleft()
                request.theirs.close()
                request.minded.withdraw(_not_sent(wrong))
                continue
            self._waiting.popleft()
            request.theirs.close()
            self._unanswered.add(request.minded.ident)

    def _writable(self) -> None:
        self._writer_added = False
        if self._socket is not None:
            self._loop.remove_writer(self._socket)
            self._pump()

    @staticmethod
    def _send(to: socket.socket, request: Request) -> None:
        frame, fds = request.frame, [request.theirs.fileno(), *request.fds]
        memory = -1
        try:
            if len(frame) > frames.LARGEST_MESSAGE:
                memory = os.memfd_create("bakemesh-start", os.MFD_CLOEXEC)
                with open(memory, "wb", buffering=0, closefd=False) as file:
                    view = memoryview(frame)
                    while view:
                        view = view[file.write(view) :]
                fds.append(memory)
                kind = frame.partition(b"\0")[0].decode()
                frame = frames.large(request.minded.ident, request.stdio, kind)
            to.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        finally:
            if memory >= 0:
                with contextlib.suppress(OSError):
                    os.close(memory)


def _not_sent(wrong: OSError) -> SpawnRefused:
    number = wrong.errno or 0
    if number == errno.EBADF:
        message = "a descriptor given as stdin, stdout or stderr is not open"
        return SpawnRefused(number, Refusal.BAD_ARGUMENT, message)
    return SpawnRefused(number, Refusal.NO_RESOURCES, f"cannot ask the keeper for a start: {wrong.strerror}")
