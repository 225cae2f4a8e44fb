"""Every process of one instance of a component, killed: for when its shim is dead, or nobody knows of it.

Known by the environment, by the limit that `env -i` keeps, and by the component's cgroup where there is one;
so what cleared its environment is missed only where an outer mark lowered that limit and no cgroup could be
made. A shim that still lives is not struck: it writes down how its component ended and ends by itself; one
that does not is killed too.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

from bakemesh.processes import cgroup, hunt, marks, proc
from bakemesh.processes.spec import Survivor, Swept, check_instance

SHIM_S = 2.0


async def sweep_instance(instance: str) -> Swept:
    """Kills every process of this instance; survivors are named after 5 s. Raises ValueError."""
    check_instance(instance)
    return await asyncio.to_thread(_sweep, instance)


async def sweep_to_the_last(instance: str, on_survivors: Callable[[tuple[Survivor, ...]], object]) -> int:
    """The same until nothing of it lives, however long that takes; how many were killed. `on_survivors` is
    told every few seconds who survives SIGKILL.
    """
    killed = 0
    while True:
        swept = await sweep_instance(instance)
        killed += swept.killed
        if not swept.survivors:
            return killed
        on_survivors(swept.survivors)


def _sweep(instance: str) -> Swept:
    entry = marks.entry(marks.INSTANCE_VARIABLE, instance)
    mark = marks.component_mark(instance)
    cgroups = cgroup.named(cgroup.component_folder_name(instance))

    def belongs(pid: int) -> bool:
        return entry in proc.variables(pid) or marks.lock_limit(pid) == mark

    def is_shim(pid: int) -> bool:
        return proc.name(pid) == marks.SHIM_NAME and entry not in proc.variables(pid)

    def empty_cgroups() -> None:
        for net in cgroups:
            net.kill()

    swept = hunt.hunt(belongs, spares=is_shim, each_round=empty_cgroups)
    _end_shims(lambda pid: is_shim(pid) and marks.lock_limit(pid) == mark)
    if not swept.survivors:
        for net in cgroups:
            net.remove()
    return swept


def _end_shims(belongs: hunt.Belongs) -> None:
    began = time.monotonic()
    while shims := [pid for pid in proc.everyone() if belongs(pid) and not proc.ended(pid)]:
        late = time.monotonic() - began > SHIM_S
        for pid in shims:
            hunt.signal_if(pid, signal.SIGKILL if late else signal.SIGCONT, belongs)
        hunt.reap(shims)
        if late and time.monotonic() - began > SHIM_S + hunt.WHO_S:
            return
        time.sleep(hunt.ROUND_S)
