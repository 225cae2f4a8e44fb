"""/proc, as far as this process needs it itself: its children, whose a process is, and killing what is below
one.

Guarantees: a process that is no child of ours is signalled through a pidfd only, after its parent was
compared, so that a pid given away anew is never hit. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal

from bakemesh.processes.spec import Survivor


def children(pid: int) -> list[int]:
    """The children of `pid`: of all its threads, for each file lists those alone that its thread forked."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}") and not os.path.exists("/proc/thread-self/children"):
            return [p for p in everyone() if parent(p) == pid]
    except OSError:
        pass
    return found


def everyone() -> list[int]:
    """Every process that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(path: str) -> bytes:
    """A small file of /proc, whole."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def fields(pid: int) -> list[bytes]:
    """`/proc/<pid>/stat` from the state on (state, ppid, …); raises OSError for a process that is gone."""
    return read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()


def parent(pid: int) -> int:
    """The parent of `pid`; 0 where the process is gone."""
    try:
        return int(fields(pid)[1])
    except OSError:
        return 0


def ended(pid: int) -> bool:
    """Whether `pid` is gone or a zombie."""
    try:
        return fields(pid)[0] in (b"Z", b"X")
    except OSError:
        return True


def name(pid: int) -> bytes:
    """The command name, which zombies have too; empty where the process is gone."""
    try:
        return read(f"/proc/{pid}/comm").rstrip(b"\n")
    except OSError:
        return b""


def variables(pid: int) -> list[bytes]:
    """The environment a process was started with; empty where it cannot be read."""
    try:
        return read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return []


def who(pid: int) -> Survivor | None:
    """The process as a survivor, None where it is gone or a zombie."""
    try:
        state = fields(pid)[0].decode()
        if state in "ZX":
            return None
        wchan = b""
        with contextlib.suppress(OSError):
            wchan = read(f"/proc/{pid}/wchan")
        return Survivor(
            pid,
            name(pid).decode(errors="replace"),
            state,
            "" if wchan == b"0" else wchan.decode(errors="replace"),
        )
    except OSError:
        return None


def signal_pinned(pid: int, number: int, parents: tuple[int, ...]) -> bool:
    """Signals `pid` if its parent is one of `parents`; the pidfd pins the process while that is compared."""
    try:
        pinned = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if parent(pid) not in parents:
            return False
        signal.pidfd_send_signal(pinned, signal.Signals(number))
    except OSError:
        return False
    finally:
        os.close(pinned)
    return True


def kill_below(top: int) -> None:
    """KILL to everything below `top`, parents first: with the signal pending no fork is finished."""
    me = os.getpid()
    unvisited = [(child, top) for child in children(top)]
    while unvisited:
        pid, above = unvisited.pop()
        signal_pinned(pid, signal.SIGKILL, (above, me))
        unvisited += [(child, pid) for child in children(pid)]
