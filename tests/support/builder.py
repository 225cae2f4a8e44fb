"""A real Builder in a process of its own, and what a test wants to know of it.

async with builder(tmp_path, nats.url) as node, supervisor(nats.url) as boss:
    bake = await boss.bake(xml, node=node.node_id)

`node.kill9()`, `node.start()`, `node.stop()`; its log is `node.log`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

READY_S = 20.0
STOP_S = 20.0


@dataclass
class RunningBuilder:
    """A Builder process; `start` again after `kill9` or `stop` keeps the state folder."""

    url: str
    node_id: str
    state: Path
    log: Path
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def launch(self) -> None:
        """Starts the process without waiting for it to be ready."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bakemesh.builder",
                "--nats",
                self.url,
                "--node",
                self.node_id,
                "--state",
                str(self.state),
                *self.flags,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.environment},
            )

    async def start(self) -> None:
        """Starts the process and waits until it is ready."""
        await self.launch()
        assert self.process is not None
        assert self.process.stdout is not None
        async with asyncio.timeout(READY_S):
            line = await self.process.stdout.readline()
        if not line.startswith(b"ready "):
            code = await self.process.wait()
            raise AssertionError(f"the Builder ended with {code}: {self.log.read_text()[-2000:]}")

    async def kill9(self) -> None:
        """Kills the Builder alone, as a crash would."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self.process is not None
        async with asyncio.timeout(STOP_S):
            return await self.process.wait()

    async def stop(self) -> int:
        """TERM, and its exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_S):
            return await self.process.wait()


@asynccontextmanager
async def builder(
    folder: Path,
    url: str,
    *flags: str,
    node_id: str = "alpha",
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[RunningBuilder]:
    """A Builder that is ready; its log is shown where the test fails inside.

    At its stop its components end too, unless the flags say otherwise: then the test ends them.
    """
    if "--on-stop" not in flags:
        flags = (*flags, "--on-stop", "stop")
    state = folder / f"state-{node_id}"
    running = RunningBuilder(url, node_id, state, folder / f"builder-{node_id}.log", flags, environment or {})
    try:
        await running.start()
        yield running
    except BaseException:
        with contextlib.suppress(OSError):
            print(f"--- {running.log}\n{running.log.read_text()[-6000:]}")
        raise
    finally:
        if running.process is not None and running.process.returncode is None:
            try:
                await running.stop()
            except TimeoutError:
                await running.kill9()
                raise AssertionError(f"the Builder did not stop in {STOP_S:g} s") from None
