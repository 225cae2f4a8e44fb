"""A real Startup Supervisor in a process of its own, and what a mesh hears of it.

async with startup(tmp_path, nats.url, "alpha", SPEC) as running:
    await running.until("announced")

`running.kill9()`, `running.start()`; its log is `running.log`. `listening(bus)` counts what it publishes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakemesh.bus import Bus
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.message import Received
from bakemesh.protocol.subjects import READY, STARTUP_RECONCILED, pattern

READY_S, STOP_S = 20.0, 20.0
TESTS = Path(__file__).parents[1]


@dataclass
class RunningStartup:
    """A process; `start` again after `kill9` or `stop` keeps the state folder. `lines`: what it said."""

    command: list[str]
    log: Path
    lines: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    _reader: asyncio.Task[None] | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def launch(self) -> None:
        """Starts it without waiting."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(TESTS), **self.environ},
            )
        self._reader = asyncio.create_task(self._read(self.process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            word, _, facts = line.decode().partition(" ")
            self.lines.append((word, json.loads(facts)))
            self._news.set()
        self.lines.append(("end", {}))
        self._news.set()

    async def start(self) -> None:
        """Starts it and waits until it is ready."""
        told = len(self.lines)
        await self.launch()
        await self.until("ready", since=told)

    def of(self, word: str) -> list[dict[str, Any]]:
        """Every line of that word."""
        return [facts for said, facts in self.lines if said == word]

    async def until(
        self, word: str, *, since: int = 0, times: int = 1, deadline: float = READY_S, **facts: Any
    ) -> dict[str, Any]:
        """The first line (from `since` on; the `times`-th) of that word with those facts; `end`: its end."""
        async with asyncio.timeout(deadline):
            while True:
                found = [
                    told
                    for said, told in self.lines[since:]
                    if said == word and told.items() >= facts.items()
                ]
                if len(found) >= times:
                    return found[times - 1]
                if self.lines[since:] and self.lines[-1][0] == "end":
                    raise AssertionError(f"it ended before {word}: {self.log.read_text()[-3000:]}")
                self._news.clear()
                await self._news.wait()

    async def kill9(self) -> None:
        """As a crash."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.ended()

    async def stop(self) -> int:
        """TERM, and its exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        assert self.process is not None
        assert self._reader is not None
        async with asyncio.timeout(STOP_S):
            code = await self.process.wait()
            await self._reader
        return code


@asynccontextmanager
async def startup(
    folder: Path,
    url: str,
    node_id: str,
    psyspec: str | None = None,
    *flags: str,
    wait: bool = True,
    program: str = "bakemesh.startup",
    environ: dict[str, str] | None = None,
) -> AsyncIterator[RunningStartup]:
    """One that is ready (with `environ` only begun); its log is shown where the test fails inside."""
    command = [sys.executable, "-m", program, "--nats", url, "--node", node_id]
    command += ["--state", str(folder / f"state-{node_id}"), *flags]
    if psyspec is not None:
        path = folder / f"{node_id}.xml"
        path.write_text(psyspec)
        command.append(str(path))
    running = RunningStartup(command, folder / f"startup-{node_id}.log", environ=environ or {})
    try:
        await (running.start() if wait and environ is None else running.launch())
        yield running
    except BaseException:
        print(f"--- {running.lines}\n{running.log.read_text()[-6000:]}")
        raise
    finally:
        if running.process is not None:
            await running.kill9()


@dataclass
class Heard:
    """What was published."""

    ready: list[Received] = field(default_factory=list)
    reconciled: list[Received] = field(default_factory=list)

    @property
    def ready_ids(self) -> set[bytes]:
        """One a Ready: the same bytes may come twice."""
        return {each.id for each in self.ready}


@asynccontextmanager
async def listening(bus: Bus) -> AsyncIterator[Heard]:
    """Counts Ready and Reconciled while the block runs."""
    heard = Heard()

    def ready(delivery: Delivery) -> None:
        heard.ready.append(delivery.received)

    def reconciled(delivery: Delivery) -> None:
        heard.reconciled.append(delivery.received)

    one = await bus.subscribe(pattern(bus.mesh, READY), ready)
    two = await bus.subscribe(pattern(bus.mesh, STARTUP_RECONCILED), reconciled)
    try:
        yield heard
    finally:
        await one.stop()
        await two.stop()
