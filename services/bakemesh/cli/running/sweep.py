"""Kills what is left of a node's components where its Builder did not get to stop them: after a forced end.

    python -m bakemesh.cli.running.sweep STATE

Known by what their shims wrote into the state folder. A Builder that runs on the folder, which `up` then did
not start, keeps its components: nothing is swept. Left out: an orderly stop, which is the Builder's.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bakemesh.processes import sweep_instance
from bakemesh.processes.records import IDENTITY, read_exit

COMPONENTS, LOCK = "components", "builder.lock"  # as the Builder has them


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
    with _without_builder(state) as alone:
        for instance in instances(state) if alone else ():
            try:
                killed += (await sweep_instance(instance)).killed
            except ValueError:  # a file that was tampered with
                continue
    return killed


@contextlib.contextmanager
def _without_builder(state: Path) -> Iterator[bool]:
    """Whether no Builder runs on the state folder; then none begins to while the block runs."""
    try:
        lock = os.open(state / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # no Builder ever ran there
        yield True
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


if __name__ == "__main__":
    asyncio.run(sweep_components(Path(sys.argv[1])))
