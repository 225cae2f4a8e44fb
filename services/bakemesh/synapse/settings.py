"""A synapse module's settings, as one value, and what follows from them for its parts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bakemesh.bus.settings import BusSettings
from bakemesh.synapse.parameters import Parameters
from bakemesh.synapse.scheduling.settings import Settings as CoreSettings
from bakemesh.workerpool import Settings as PoolSettings
from bakemesh.workerpool.settings import OUR_WORKER, runtime_dir

FOLDER: Final = "synapse"
SERVICE: Final = "synapse"
MEMORY_SHARE: Final = 0.7  # of the machine's, for all models together, where nobody says how much


@dataclass(frozen=True, kw_only=True, slots=True)
class SynapseSettings:
    """`folder`: the module's own, on a disk of the node. `default_s`: the time of a caller that names none.
    `grace_s`: for what runs, when the module is to end."""

    bus: BusSettings
    node: str
    node_id: str
    folder: Path
    parameters: Parameters
    default_s: float = 900.0
    grace_s: float = 4.0

    @property
    def name(self) -> str:
        """The party under which it speaks."""
        return self.bus.party

    def core(self) -> CoreSettings:
        """The scheduling's numbers."""
        given = self.parameters
        memory = machine_memory() * MEMORY_SHARE if given.memory_mib is None else given.memory_mib * 2**20
        return CoreSettings(max_queue_s=given.max_queue_ms / 1000, memory_bytes=max(1, int(memory)))

    def pool(self) -> PoolSettings:
        """Those of its own workers."""
        given = self.parameters
        return PoolSettings(
            runtime_dir=runtime_dir(self.folder),
            workers=given.workers or len(os.sched_getaffinity(0)),
            command=(*OUR_WORKER, "--engine", given.engine),
            quarantine_file=self.folder / "quarantine.json",
        )


def machine_memory() -> int:
    """Bytes that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
