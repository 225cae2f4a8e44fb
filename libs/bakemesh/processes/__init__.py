"""Processes of steps: started through a keeper beside this process, killed to the last one, never doubled.

    keeper = await Keeper.start(token)
    minded = await keeper.spawn(ProcessSpec(["/bin/ls"], env={}, cwd="/tmp"), stdout=write_end)
    exit = await minded.exited()
    swept = await minded.sweep()

Guarantees: nothing here forks this process or blocks its event loop; when this process, the keeper or a
minder is killed, the steps die with it; nothing that was queued starts after this process ended. Leaves out:
reading output (give the write end of a pipe and close your copy after `spawn`), timeouts, retries, and
processes that are to outlive this one.
"""

from bakemesh.processes.errors import (
    KeeperFailed,
    KeeperLost,
    ProcessError,
    Refusal,
    SpawnRefused,
)
from bakemesh.processes.keeper import Keeper
from bakemesh.processes.minded import Minded
from bakemesh.processes.spec import Exit, ProcessSpec, Survivor, Swept
from bakemesh.processes.strangers import reap_strangers

__all__ = [
    "Exit",
    "Keeper",
    "KeeperFailed",
    "KeeperLost",
    "Minded",
    "ProcessError",
    "ProcessSpec",
    "Refusal",
    "SpawnRefused",
    "Survivor",
    "Swept",
    "reap_strangers",
]
