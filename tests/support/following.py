"""A command that goes on and tells what happens, one JSON line an event; and commands with a party's key.

cli = Commands(net, home)
done = await cli.run("nodes", "--json", party="ops")
async with cli.following("watch", party="board") as watch: await watch.until("node", state="gone")
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.commandline import PROGRAM, bakemesh, environment
from support.mesh import Mesh

WITHIN_S = 45.0


@dataclass
class Following:
    """A running command. `events`: all it told so far; `log`: its stderr."""

    process: asyncio.subprocess.Process
    log: Path
    events: list[dict[str, Any]] = field(default_factory=list)

    async def line(self) -> bytes:
        """Its next line, whatever it is."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WITHIN_S):
            return await self.process.stdout.readline()

    async def until(self, event: str, **fields: object) -> dict[str, Any]:
        """The next event of that name with those fields. Fails where the command ends before, or in time."""
        while True:
            try:
                line = await self.line()
            except TimeoutError:
                raise AssertionError(f"no {event} {fields}: {self.events[-20:]}\n{self.said()}") from None
            assert line, f"it ended before {event} {fields}: {self.events[-20:]}\n{self.said()}"
            self.events.append(json.loads(line))
            if self.events[-1].items() >= {"event": event, **fields}.items():
                return self.events[-1]

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    async def interrupt(self) -> int:
        """Ctrl-C; its exit code."""
        self.process.send_signal(signal.SIGINT)
        return await self.ended()

    async def ended(self) -> int:
        """Its exit code."""
        async with asyncio.timeout(WITHIN_S):
            assert self.process.stdout is not None
            while line := await self.process.stdout.readline():
                if line.startswith(b"{"):
                    self.events.append(json.loads(line))
            return await self.process.wait()


class Commands:
    """The command line against a mesh."""

    def __init__(self, net: Mesh, home: Path) -> None:
        self.net, self.home = net, home

    def _flags(self, party: str) -> list[str]:
        return ["--nats", self.net.url, "--supervisor", party, *self.net.key_flags(party)]

    async def run(
        self, *args: str, party: str, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """A command to its end."""
        return await asyncio.to_thread(bakemesh, *args, *self._flags(party), home=self.home, stdin=stdin)

    async def json(self, *args: str, party: str) -> Any:
        """What a command answers with --json; it must end well."""
        done = await self.run(*args, "--json", party=party)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    @asynccontextmanager
    async def following(self, *args: str, party: str, machine: bool = True) -> AsyncIterator[Following]:
        """A command that goes on; killed at the end if it still does."""
        log = self.home / f"{args[0]}.log"
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *PROGRAM,
                *args,
                *(("--json",) if machine else ()),
                *self._flags(party),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment(self.home),
                cwd=self.home,
            )
        try:
            yield Following(process, log)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
