"""What comes up to this process when the keeper died: found, killed, reaped.

This process is a subreaper, so that processes whose minder and keeper are dead become its children.
Guarantees: only what carries a mark of this keeper (`marks.py`) is killed or reaped, so that children
somebody else here started and waits for are left alone, shims and components too; minders that still live
are given time, for they kill their own step exactly. Where the mark of the score tells nothing (this
process's own is close to 1000) and no cgroup could be made, processes that cleared their environment are not
found.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time

from bakemesh.processes import marks, proc
from bakemesh.processes.cgroup import StepCgroup
from bakemesh.processes.spec import Survivor, Swept

PR_SET_CHILD_SUBREAPER = 36
MINDERS_S = 1.5  # for minders to do it themselves
WHO_S = 5.0
ROUND_S = 0.002
SLOW_ROUND_S = 0.2


def become_subreaper() -> None:
    """From now on orphans below this process become its children."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Orphans:
    """Children of this process that a keeper left behind."""

    def __init__(self, token: str, cgroup: StepCgroup | None) -> None:
        self._entry = marks.entry(marks.STEP_VARIABLE, token)
        self._cgroup = cgroup
        self._score = marks.step_oom_score()
        self._known: set[int] = set()
        self._killed = 0

    async def sweep(self) -> Swept:
        """Kills and reaps until none is left, or for 5 s: then the answer names who lives."""
        self._killed = 0
        began = time.monotonic()
        while self._round(minders_too=time.monotonic() - began > MINDERS_S):
            if time.monotonic() - began > WHO_S and (alive := self._alive()):
                return Swept(self._killed, alive)
            await asyncio.sleep(ROUND_S)
        return Swept(self._killed)

    async def persist(self) -> None:
        """Goes on with what a sweep could not end, until none is left."""
        while self._round(minders_too=True):  # noqa: ASYNC110 - nothing tells when a parent's child ends
            await asyncio.sleep(SLOW_ROUND_S)

    def _round(self, minders_too: bool) -> bool:
        """One look at the children; True while some of the keeper's are left."""
        left = False
        for pid in proc.children(os.getpid()):
            minder = self._is_minder(pid)
            if not minder and not self._is_step(pid):
                continue
            left = True
            if not minder or minders_too:
                self._known.add(pid)
                # A child of ours that is not reaped keeps its pid, so that a plain kill is safe.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                proc.kill_below(pid)
            self._reap(pid)
        return left

    def _reap(self, pid: int) -> None:
        try:
            reaped, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return
        if reaped:
            self._known.discard(pid)
            self._killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    def _is_minder(self, pid: int) -> bool:
        return proc.name(pid) == marks.MINDER_NAME

    def _is_step(self, pid: int) -> bool:
        if pid in self._known:
            return True
        if proc.name(pid) in (marks.KEEPER_NAME, marks.NURSERY_NAME, marks.SHIM_NAME):
            return False
        if self._score is not None and marks.oom_score(pid) == self._score:
            return True
        if self._cgroup is not None and self._cgroup.holds(pid):
            return True
        return self._entry in proc.variables(pid)

    def _alive(self) -> tuple[Survivor, ...]:
        found = [
            proc.who(pid) for pid in proc.children(os.getpid()) if self._is_minder(pid) or self._is_step(pid)
        ]
        return tuple(survivor for survivor in found if survivor is not None)
