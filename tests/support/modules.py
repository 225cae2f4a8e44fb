"""Components for tests: `<module>` steps around small shell scripts, what the node says of them, who lives.

xml = module("m", "echo hello; exec sleep 1000", ready_ms=0)
await house.bake(recipe(xml))
row = await component(house.bus, "m", lambda row: row["state"] == "ready")
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from bakemesh.builder.components.records import Row, all_rows
from bakemesh.bus import Bus
from bakemesh.protocol.builder.messages import Result, SystemStatus
from bakemesh.protocol.builder.node import (
    RemoveComponent,
    RestartComponent,
    StartComponent,
    StopComponent,
)
from bakemesh.protocol.subjects import NO_KEY, build, pattern
from support.processes import gone
from support.waiting import eventually

VERBS = {
    "Restart": RestartComponent,
    "Stop": StopComponent,
    "Start": StartComponent,
    "Remove": RemoveComponent,
}
SLEEP = "exec sleep 1000"


def module(name: str, script: str = SLEEP, inside: str = "", *, wait: bool = True, **attributes: Any) -> str:
    """A `<module>` step whose crank is a shell script. Attributes: `ready_ms=0` is `ready-ms="0"`."""
    given = {"ready_ms": 0, **attributes}
    written = " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in given.items())
    command = quoteattr(f"/bin/sh -c '{script}'".replace("$", "$$"))
    waits = "" if wait else ' wait="no"'
    return f'<module name="{name}" {written}{waits}><crank command={command}/>{inside}</module>'


def attach(name: str, *, follow: bool = False, attributes: str = "") -> str:
    """An `<attach>` step."""
    return f'<attach module="{name}" follow="{"yes" if follow else "no"}" {attributes}/>'


def recipe(*steps: str, attributes: str = "") -> str:
    """A recipe of these steps."""
    return f'<recipe name="r" {attributes}>{"".join(steps)}</recipe>'


class Board:
    """The latest SystemStatus of each node."""

    def __init__(self) -> None:
        self.latest: dict[str, SystemStatus] = {}
        self.states: dict[str, list[str]] = {}  # each component's, as they were seen to change

    def take(self, delivery: Any) -> None:
        status = delivery.received.message
        self.latest[status.node_id] = status
        for row in status.components:
            seen = self.states.setdefault(row["name"], [])
            if not seen or seen[-1] != row["state"]:
                seen.append(row["state"])

    def row(self, name: str, node_id: str = "alpha") -> dict[str, Any] | None:
        """A component, as its node said last."""
        status = self.latest.get(node_id)
        found = [row for row in status.components if row["name"] == name] if status else []
        return found[0] if found else None

    async def until(
        self, name: str, check: Callable[[dict[str, Any]], Any] | str, *, within: float = 20.0
    ) -> dict[str, Any]:
        """The component once it is in a state, or `check` is true of it."""

        def found() -> dict[str, Any] | None:
            row = self.row(name)
            if row is None:
                return None
            good = row["state"] == check if isinstance(check, str) else check(row)
            return row if good else None

        try:
            return await eventually(found, within=within, what=f"component {name}: {check}")
        except AssertionError:
            raise AssertionError(f"component {name} is {self.row(name)}, wanted: {check}") from None

    async def without(self, name: str) -> None:
        """Returns when the node knows of no such component."""
        await eventually(lambda: self.latest and self.row(name) is None, what=f"the removal of {name}")


@asynccontextmanager
async def board(bus: Bus) -> AsyncIterator[Board]:
    """Listens as long as it is open."""
    made = Board()
    listening = await bus.subscribe(pattern(bus.mesh, SystemStatus.TYPE), made.take)
    try:
        yield made
    finally:
        await listening.stop()


async def order(
    bus: Bus, verb: str, name: str, *, issuer: str, node_id: str = "alpha", **more: Any
) -> Result:
    """The Result of a ComponentControl."""
    message = VERBS[verb](component=more.get("component", name), issuedby=more.get("issuedby", issuer))
    subject = build(bus.mesh, node_id, issuer, name, message.TYPE)
    answer = (await bus.request(subject, message, 5)).message
    assert isinstance(answer, Result)
    return answer


async def say(bus: Bus, message: Any, *, party: str, node_id: str = "alpha") -> Result:
    """The Result of a ComponentReport."""
    subject = build(bus.mesh, node_id, party, NO_KEY, message.TYPE)
    answer = (await bus.request(subject, message, 5)).message
    assert isinstance(answer, Result)
    return answer


def rows_in(state: Path) -> dict[str, Row]:
    """The journal's rows, read beside the Builder."""
    db = sqlite3.connect(f"file:{state}/journal.db?mode=ro", uri=True)
    try:
        return {row.name: row for row in all_rows(db)}
    finally:
        db.close()


def _environment(pid: int) -> list[bytes]:
    """What a process was started with. One that is in the middle of an exec has none for a moment."""
    for _ in range(200):
        words = Path(f"/proc/{pid}/environ").read_bytes()
        if words or gone(pid):
            return words.split(b"\0")
        time.sleep(0.001)
    return []


def _in(folder: Path, pid: int) -> bool:
    """Whether a process works in that folder, whatever it is."""
    return os.fsencode(os.readlink(f"/proc/{pid}/cwd")).startswith(os.fsencode(folder))


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def instances(name: str, state: Path) -> list[int]:
    """Main processes that live of a component on a state folder, whoever started them: their environment and
    working folder say so, and their parent is a shim."""
    found = []
    folder = state / "components" / name / "data"
    for pid in _pids():
        with contextlib.suppress(OSError, AssertionError):
            if not gone(pid) and _in(folder, pid):
                shim_of(pid)
                if f"BAKEMESH_COMPONENT={name}".encode() in _environment(pid):
                    found.append(pid)
    return found


def shim_of(pid: int) -> int:
    """The shim of a component's main process."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    assert Path(f"/proc/{parent}/comm").read_text().strip() == "bakemesh-shim"
    return parent


def everything_of(state: Path) -> list[int]:
    """Every process of every component on a state folder."""
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if gone(pid) or not _in(state / "components", pid):
                continue
            if any(word.startswith(b"BAKEMESH_INSTANCE=") for word in _environment(pid)):
                found.append(pid)
    return found


async def end_everything(state: Path) -> None:
    """After a test whose components run on: nothing of them is left."""
    while pids := everything_of(state):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.01)
