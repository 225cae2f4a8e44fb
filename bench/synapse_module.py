"""A synapse module for benches: a server and `python -m bakemesh.synapse` on it, with one model ingested."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import common
import psutil


@dataclass(frozen=True)
class Module:
    """nats-server, module and workers. `pids`: of the first two; the workers are the module's children."""

    url: str
    pids: tuple[int, ...]

    @property
    def cpu_s(self) -> float:
        """Of all of them, so far."""
        return sum(common.cpu_s(each.pid) for pid in self.pids for each in _family(pid))


def _family(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


@asynccontextmanager
async def running(where: Path, alias: str, model: Path, *flags: str) -> AsyncIterator[Module]:
    """Ready for requests; ended, and waited for, afterwards."""
    async with common.server(where) as server:
        with (where / "synapse.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bakemesh.synapse", "--nats", server.url, "--node", "bench"),
                *("--state", str(where / "state"), "--model", f"{alias}={model}", *flags),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "BAKEMESH_LOG_LEVEL": "warning"},
            )
        module = common.Role(process, "synapse")
        try:
            await module.ready()
            yield Module(server.url, (process.pid, server.pid))
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
