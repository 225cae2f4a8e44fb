"""What a predecessor of the same token left alive, killed at the start, before anything is run again.

Steps die with their keeper, so there is something only where the predecessor, its keeper and its minders all
died at once (or were stopped). Guarantees: a keeper or minder that still lives is woken and given time, for
it knows its tree; then the cgroup is emptied where there is one; then every process that carries the token,
and all below it, is killed, until two rounds in a row find none. Leaves out: daemons that cleared their
environment and lost every marked parent, where no cgroup could be made. To be called before `Keeper.start`:
the own steps would be found as well.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

from bakemesh.processes import marks, proc
from bakemesh.processes.cgroup import existing
from bakemesh.processes.spec import Swept

THEMSELVES_S = 2.0
WHO_S = 5.0
ROUND_S = 0.005


async def reap_strangers(token: str) -> Swept:
    """Kills what is left of a dead owner of `token`; survivors are named after 5 s."""
    if not token:
        raise ValueError("a token is needed to tell the own from others")
    return await asyncio.to_thread(_reap, token)


def _reap(token: str) -> Swept:
    spared = _ancestry()
    _let_minders_end(token, spared)
    killed: set[tuple[int, int]] = set()
    cgroups = existing(token)
    step = (marks.entry(marks.STEP_VARIABLE, token), marks.entry(marks.KEEPER_VARIABLE, token))
    began = time.monotonic()
    quiet = 0
    while quiet < 2:
        inside = {pid for cgroup in cgroups for pid in cgroup.members()} - spared
        found = inside | {pid for pid in _marked(*step) if pid not in spared}
        for pid in found:
            killed.update(_kill_with_below(pid, step, pid in inside))
        for cgroup in cgroups:
            if not spared & set(cgroup.members()):
                cgroup.kill()
        quiet = 0 if found else quiet + 1
        if found and time.monotonic() - began > WHO_S:
            alive = [proc.who(pid) for pid in sorted(found)]
            return Swept(len(killed), tuple(survivor for survivor in alive if survivor is not None))
        if found:
            time.sleep(ROUND_S)
    for cgroup in cgroups:
        cgroup.remove()
    return Swept(len(killed))


def _let_minders_end(token: str, spared: set[int]) -> None:
    entry = marks.entry(marks.KEEPER_VARIABLE, token)
    until = time.monotonic() + THEMSELVES_S
    while time.monotonic() < until:
        minders = [pid for pid in _marked(entry) if pid not in spared]
        if not minders:
            return
        for pid in minders:
            _signal_marked(pid, signal.SIGCONT, (entry,))
        time.sleep(ROUND_S)


def _ancestry() -> set[int]:
    """This process and those above it: one that runs inside a step must not end itself."""
    found = {1}
    pid = os.getpid()
    while pid > 1:
        found.add(pid)
        pid = proc.parent(pid)
    return found


def _marked(*entries: bytes) -> list[int]:
    return [pid for pid in proc.everyone() if not _free_of(entries, proc.variables(pid))]


def _free_of(entries: tuple[bytes, ...], variables: list[bytes]) -> bool:
    return not any(entry in variables for entry in entries)


def _signal_marked(
    pid: int, number: signal.Signals, entries: tuple[bytes, ...], inside: bool = False
) -> bool:
    try:
        pinned = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Read again with the process pinned: the pid may have been given away since the scan.
        if not inside and _free_of(entries, proc.variables(pid)):
            return False
        signal.pidfd_send_signal(pinned, number)
    except OSError:
        return False
    finally:
        os.close(pinned)
    return True


def _kill_with_below(pid: int, entries: tuple[bytes, ...], inside: bool) -> set[tuple[int, int]]:
    """Kills one and everything below; returns (pid, start time) of those that were alive."""
    killed = set()
    identity = _identity(pid)
    if _signal_marked(pid, signal.SIGKILL, entries, inside) and identity:
        killed.add(identity)
        todo = [(child, pid) for child in proc.children(pid)]
        while todo:
            below, above = todo.pop()
            identity = _identity(below)
            if proc.signal_pinned(below, signal.SIGKILL, (above,)) and identity:
                killed.add(identity)
            todo += [(child, below) for child in proc.children(below)]
    return killed


def _identity(pid: int) -> tuple[int, int] | None:
    try:
        fields = proc.fields(pid)
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (pid, int(fields[19]))
