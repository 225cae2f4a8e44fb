"""A worker's process: started by exec, watched by a pidfd, killed with all its kin, dead with its host.

Guarantees: the kernel kills it when this thread's process dies, also where it hangs in the engine and does
not see the end of its socket (Linux; elsewhere the socket's end alone tells it); SIGKILL goes to its whole
process group, before anybody else can have the pid. Left out: when to kill; processes of Windows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bakemesh.workerpool.output import Drain, Ring
from bakemesh.workerpool.settings import OUR_WORKER

# Run in place of the worker, which it then becomes: PR_SET_PDEATHSIG is kept over exec, and a process that
# starts after its parent died leaves at once.
_LEASH = """\
import ctypes,os,sys
ctypes.CDLL(None).prctl(1,9)
if os.getppid()!=int(sys.argv[1]):os._exit(1)
try:os.execvp(sys.argv[2],sys.argv[2:])
except OSError as e:sys.exit(f"cannot start {sys.argv[2]!r}: {e.strerror}")
"""
ASKED = "BAKEMESH_WORKER_DIES_WITH_PARENT"
DIES_S = 5.0  # after SIGKILL; what hangs in the kernel for longer is left to it, nobody waits
DRAINED_S = 0.25  # for the last of its output; a child of its own can hold the pipes open


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended; both None where that cannot be known."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            try:
                return f"killed by {signal.Signals(self.signal).name}"
            except ValueError:
                return f"killed by signal {self.signal}"
        return "ended" if self.code is None else f"exit code {self.code}"


class Child:
    """A process of a worker; made by `spawn`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], ring: Ring) -> None:
        self._loop, self._process, self.ring = loop, process, ring
        self.pid = process.pid
        self.exit: Exit | None = None
        self._ended: asyncio.Future[Exit] = loop.create_future()
        assert process.stdout is not None
        assert process.stderr is not None
        self._drains = [
            Drain(loop, os.dup(process.stdout.fileno()), "stdout", ring),
            Drain(loop, os.dup(process.stderr.fileno()), "stderr", ring),
        ]
        process.stdout.close()
        process.stderr.close()
        self._pidfd = -1
        self._watch()

    def _watch(self) -> None:
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(self.pid)
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._reap)
        else:  # a thread that waits, where the system has no pidfd
            threading.Thread(target=self._wait_apart, name=f"worker-{self.pid}", daemon=True).start()

    def _reap(self) -> None:
        # Its own waiting, for Popen takes a child that somebody else reaped for one that ended well. What it
        # started is killed first: until it is reaped its process group cannot be another's.
        try:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return
            self.kill()
            _, status = os.waitpid(self.pid, 0)
        except ChildProcessError:
            self._done(Exit())
        else:
            self._done(_exit(status))

    def _wait_apart(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop is closed, nobody waits
            self._loop.call_soon_threadsafe(self._reap)

    def _done(self, how: Exit) -> None:
        if self.exit is not None:
            return
        self.exit = how
        self._process.returncode = 0  # it is reaped: Popen has nothing to warn of
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if not self._ended.done():
            self._ended.set_result(how)

    def on_exit(self, call: Callable[[Exit], None]) -> None:
        """Calls `call(exit)` from the loop when it ended."""
        self._ended.add_done_callback(lambda ended: call(ended.result()))

    async def exited(self, within_s: float) -> Exit | None:
        """How it ended; None where it did not in time."""
        await asyncio.wait([self._ended], timeout=within_s)
        return self.exit

    def kill(self) -> None:
        """SIGKILL to it and what it started."""
        if self.exit is None:  # so it is not reaped, and the pid is its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def said(self, most: int) -> str:
        """The last of its output, when it ended; waits for that for a moment."""
        waits = [asyncio.ensure_future(drain.ended.wait()) for drain in self._drains]
        await asyncio.wait(waits, timeout=DRAINED_S)
        for wait in waits:
            wait.cancel()
        self.close()
        return self.ring.tail(most)

    def close(self) -> None:
        """Reads no more output."""
        for drain in self._drains:
            drain.close()


def _exit(status: int) -> Exit:
    if os.WIFSIGNALED(status):
        return Exit(signal=os.WTERMSIG(status))
    return Exit(code=os.WEXITSTATUS(status))


def leashed(command: Sequence[str]) -> list[str]:
    """The command that dies with this process, where the kernel can do that. Our own worker sees to it by
    itself when it is asked to (ASKED), and starts faster so."""
    if sys.platform != "linux" or tuple(command[: len(OUR_WORKER)]) == OUR_WORKER:
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command]


def spawn(
    loop: asyncio.AbstractEventLoop, command: Sequence[str], env: Mapping[str, str], ring: Ring
) -> Child:
    """Starts a process; to be called in the loop's thread, whose end is the process's too. Raises OSError.

    It has a session of its own: a terminal's Ctrl-C is for the host, which then ends it in good order.
    """
    process = subprocess.Popen(
        leashed(command),
        env={**os.environ, **env, ASKED: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    return Child(loop, process, ring)
