"""What a predecessor of the same token left alive, killed at the start, before anything is run again.

Steps die with their keeper, so there is something only where the predecessor, its keeper and its minders all
died at once (or were stopped). Guarantees: a keeper or minder that still lives is woken and given time, for
it knows its tree; then the cgroup is emptied where there is one; then every process that carries the token,
and all below it, is killed, until two rounds in a row find none; shims and their components are spared.
Leaves out: daemons that cleared their environment and lost every marked parent, where no cgroup could be
made. To be called before `Keeper.start`: the own steps would be found as well.
"""

from __future__ import annotations

import asyncio
import signal
import time

from bakemesh.processes import hunt, marks, proc
from bakemesh.processes.cgroup import existing
from bakemesh.processes.spec import Swept

THEMSELVES_S = 2.0


async def reap_strangers(token: str) -> Swept:
    """Kills what is left of a dead owner of `token`; survivors are named after 5 s."""
    if not token:
        raise ValueError("a token is needed to tell the own from others")
    return await asyncio.to_thread(_reap, token)


def _reap(token: str) -> Swept:
    keepers = marks.entry(marks.KEEPER_VARIABLE, token)
    steps = marks.entry(marks.STEP_VARIABLE, token)
    spared = hunt.ancestry()
    cgroups = existing(token)

    def is_shim(pid: int) -> bool:
        return proc.name(pid) == marks.SHIM_NAME and keepers in proc.variables(pid)

    def belongs(pid: int) -> bool:
        variables = proc.variables(pid)
        return steps in variables or keepers in variables or any(net.holds(pid) for net in cgroups)

    def empty_cgroups() -> None:
        for cgroup in cgroups:
            inside = set(cgroup.members())
            if not spared & inside and not any(map(is_shim, inside)):
                cgroup.kill()

    _let_minders_end(keepers, spared, is_shim)
    swept = hunt.hunt(belongs, spares=is_shim, each_round=empty_cgroups)
    if not swept.survivors:
        for cgroup in cgroups:
            cgroup.remove()
    return swept


def _let_minders_end(keepers: bytes, spared: set[int], is_shim: hunt.Belongs) -> None:
    def is_minder(pid: int) -> bool:
        return keepers in proc.variables(pid) and not is_shim(pid)

    until = time.monotonic() + THEMSELVES_S
    while time.monotonic() < until:
        minders = [pid for pid in proc.everyone() if pid not in spared and is_minder(pid)]
        if not minders:
            return
        for pid in minders:
            hunt.signal_if(pid, signal.SIGCONT, is_minder)
        time.sleep(hunt.ROUND_S)
