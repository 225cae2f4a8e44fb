"""Processes that are known by a mark, found anywhere and killed to the last one.

Guarantees: each is pinned by a pidfd and looked at again before it is signalled, so that a pid given away
anew is never hit; this process and those above it are spared; everything below a marked process goes with it;
it ends when two rounds in a row find nothing, or after 5 s with the names of who lives. Blocks: for a thread
of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

from bakemesh.processes import proc
from bakemesh.processes.spec import Swept

WHO_S = 5.0
ROUND_S = 0.005

Belongs = Callable[[int], bool]


def hunt(
    belongs: Belongs,
    *,
    spares: Belongs,
    each_round: Callable[[], object],
) -> Swept:
    """Kills what `belongs`, and all below but what `spares` names, until none is left; `each_round` is called
    after each look.
    """
    above = ancestry()
    killed: set[tuple[int, int]] = set()
    began = time.monotonic()
    quiet = 0
    while quiet < 2:
        living = [pid for pid in proc.everyone() if pid not in above and not proc.ended(pid)]
        found = [pid for pid in living if belongs(pid) and not spares(pid)]
        for pid in found:
            killed |= _kill_with_below(pid, belongs, spares)
        each_round()
        reap(pid for pid, _ in killed)
        quiet = 0 if found else quiet + 1
        if found and time.monotonic() - began > WHO_S:
            alive = [proc.who(pid) for pid in sorted(found)]
            return Swept(len(killed), tuple(survivor for survivor in alive if survivor is not None))
        if found:
            time.sleep(ROUND_S)
    return Swept(len(killed))


def ancestry() -> set[int]:
    """This process and those above it: one that runs inside a step must not end itself."""
    found = {1}
    pid = os.getpid()
    while pid > 1:
        found.add(pid)
        pid = proc.parent(pid)
    return found


def signal_if(pid: int, number: signal.Signals, belongs: Belongs) -> bool:
    """Signals a process if it still belongs once it is pinned: the pid may have been given away."""
    try:
        pinned = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not belongs(pid):
            return False
        signal.pidfd_send_signal(pinned, number)
    except OSError:
        return False
    finally:
        os.close(pinned)
    return True


def reap(pids: Iterable[int]) -> None:
    """Takes those that ended and are children of this process, which is a subreaper."""
    me = os.getpid()
    for pid in pids:
        if proc.parent(pid) == me:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def identity(pid: int) -> tuple[int, int] | None:
    """Pid and start time of a process that lives."""
    try:
        fields = proc.fields(pid)
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (pid, int(fields[19]))


def _kill_with_below(top: int, belongs: Belongs, spares: Belongs) -> set[tuple[int, int]]:
    """Kills one and everything below; returns those that were alive."""
    killed = set()
    one = identity(top)
    if signal_if(top, signal.SIGKILL, belongs) and one:
        killed.add(one)
        unvisited = [(child, top) for child in proc.children(top)]
        while unvisited:
            pid, above = unvisited.pop()
            if spares(pid):
                continue
            one = identity(pid)
            if proc.signal_pinned(pid, signal.SIGKILL, (above,)) and one:
                killed.add(one)
            unvisited += [(child, pid) for child in proc.children(pid)]
    return killed
