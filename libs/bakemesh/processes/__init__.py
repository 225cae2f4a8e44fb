"""Processes of steps and components: started through a keeper beside this process, killed to the last one,
never doubled.

    keeper = await Keeper.start(token)
    minded = await keeper.spawn(ProcessSpec(["/bin/ls"], env={}, cwd="/tmp"), stdout=write_end)
    exit = await minded.exited()
    swept = await minded.sweep()

    shimmed = await keeper.launch(ShimSpec(process=…, folder=folder, instance="a name of this start alone"))
    found = await adopt(folder, instance)  # of a Builder before this one: Shimmed, ShimExit or None
    exit = await shimmed.ended()

Guarantees: nothing here forks this process or blocks its event loop; when this process, the keeper or a
minder is killed, the steps die with it; nothing that was queued starts after this process ended. A component
runs on when this process and the keeper die, is found again by its folder, and tells how it ended then too;
when its shim is killed it dies. Leaves out: reading output (give the write end of a pipe and close your copy
after `spawn`; a component's is in a file), timeouts, retries and restarts.
"""

from bakemesh.processes.adopting import adopt
from bakemesh.processes.errors import (
    KeeperFailed,
    KeeperLost,
    ProcessError,
    Refusal,
    SpawnRefused,
)
from bakemesh.processes.keeper import Keeper
from bakemesh.processes.minded import Minded
from bakemesh.processes.nurse import Nurse
from bakemesh.processes.nursery import Nursery
from bakemesh.processes.shimmed import Shimmed
from bakemesh.processes.spec import Exit, ProcessSpec, ShimExit, ShimSpec, Survivor, Swept
from bakemesh.processes.strangers import reap_strangers
from bakemesh.processes.sweeping import sweep_instance

__all__ = [
    "Exit",
    "Keeper",
    "KeeperFailed",
    "KeeperLost",
    "Minded",
    "Nurse",
    "Nursery",
    "ProcessError",
    "ProcessSpec",
    "Refusal",
    "ShimExit",
    "ShimSpec",
    "Shimmed",
    "SpawnRefused",
    "Survivor",
    "Swept",
    "adopt",
    "reap_strangers",
    "sweep_instance",
]
