"""Kills what is left of a node's components where its Builder did not get to stop them: after a forced end.

    python -m bakemesh.cli.running.sweep STATE

Known by what their shims wrote into the state folder. To be called when the node's Builder is dead, so that
nothing new begins. Left out: an orderly stop, which is the Builder's.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bakemesh.processes import sweep_instance
from bakemesh.processes.records import IDENTITY, read_exit

COMPONENTS = "components"


def instances(state: Path) -> list[str]:
    """The instances that shims on this state folder were started for last and that have not ended."""
    found = []
    for path in sorted((state / COMPONENTS).glob(f"*/{IDENTITY}")):
        try:
            lines = path.read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        started = [line.partition(" ")[2] for line in lines if line.startswith("instance ")]
        found += [instance for instance in started if read_exit(path.parent, instance) is None]
    return found


async def sweep_components(state: Path) -> int:
    """How many processes were killed. Never raises for one that cannot be named."""
    killed = 0
    for instance in instances(state):
        try:
            killed += (await sweep_instance(instance)).killed
        except ValueError:  # a file that was tampered with
            continue
    return killed


if __name__ == "__main__":
    asyncio.run(sweep_components(Path(sys.argv[1])))
