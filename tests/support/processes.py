"""Process trees for tests: markers, the scan that says who lives, pipes, and a stand-in for the Builder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bakemesh.processes import Keeper, Minded, ProcessSpec, Shimmed, ShimSpec, sweep_instance
from bakemesh.processes.cgroup import existing
from support.waiting import eventually

HERE = Path(__file__).parent
PATH = {"PATH": "/usr/bin:/bin"}


def new_marker() -> str:
    """A word that is on no other command line."""
    return "mark" + uuid.uuid4().hex


def alive(marker: str) -> list[int]:
    """Processes with `marker` in their command line. Zombies have none: they are dead."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if marker.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                    found.append(int(entry))
    return found


def gone(pid: int) -> bool:
    """Whether a process is dead; a zombie is."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


def children(pid: int) -> list[int]:
    """The children of `pid`, zombies too."""
    found = []
    with contextlib.suppress(OSError):
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(child) for child in file.read_text().split()]
    return found


def zombies(pid: int) -> list[int]:
    """Ended children of `pid` that nobody took."""
    return [child for child in children(pid) if gone(child)]


def fd_count(pid: int | str = "self") -> int:
    """How many descriptors a process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def zoo(kinds: str, n: int, marker: str, life_s: float = 25) -> list[str]:
    """The command that grows nasty trees."""
    return [sys.executable, "-I", "-S", str(HERE / "zoo.py"), kinds, str(n), marker, str(life_s)]


async def read_until(fd: int, end: bytes | None = None, *, within: float = 20) -> bytes:
    """Reads a pipe up to `end`, None: to its end. Fails when that takes too long."""
    os.set_blocking(fd, False)
    data = b""

    def more() -> bool:
        nonlocal data
        while True:
            try:
                part = os.read(fd, 65536)
            except BlockingIOError:
                return False
            data += part
            if not part or (end is not None and end in data):
                return True

    await eventually(more, within=within, what=f"output {end!r} (so far {data[-200:]!r})")
    return data


class Pipe:
    """A pipe, closed at the end of a `with`; the writing end is closed by `given` once a process has it."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def given(self) -> None:
        """Closes the writing end here, so that the pipe ends with its last process."""
        if self.writing >= 0:
            os.close(self.writing)
        self.writing = -1

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        self.given()
        os.close(self.reading)


async def grow(keeper: Keeper, kinds: str, n: int, marker: str) -> Minded:
    """Starts a zoo under the keeper and waits until it stands."""
    with Pipe() as pipe:
        minded = await keeper.spawn(ProcessSpec(zoo(kinds, n, marker), PATH), stdout=pipe.writing)
        pipe.given()
        assert b"up" in await read_until(pipe.reading, b"up")
    return minded


async def output(
    keeper: Keeper,
    argv: Sequence[str],
    env: Mapping[str, str] = PATH,
    cwd: str | Path | None = None,
    *,
    stderr: bool = False,
) -> bytes:
    """What a program that ends well writes."""
    with Pipe() as pipe:
        minded = await keeper.spawn(
            ProcessSpec(argv, env, cwd), stdout=pipe.writing, stderr=pipe.writing if stderr else None
        )
        pipe.given()
        data = await read_until(pipe.reading)
        end = await minded.exited()
        assert end.code == 0, (end, data)
        await minded.sweep()
    return data


class Owner:
    """A stand-in for the Builder: a process with a keeper and steps, made to be killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.facts: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        """The process to kill."""
        return self.process.pid

    @property
    def keeper(self) -> int:
        """Its keeper's pid."""
        return int(self.facts["keeper"])

    @property
    def shims(self) -> list[int]:
        """Its shims' pids."""
        return [int(pid) for pid in self.facts["shims"]]

    @property
    def instances(self) -> list[str]:
        """Its components' instances; each is in the folder of its marker in `home`."""
        return [str(instance) for instance in self.facts["instances"]]

    @property
    def minders(self) -> list[int]:
        """Its minders' pids."""
        return [int(pid) for pid in self.facts["minders"]]

    async def tell(self) -> dict[str, Any]:
        """The next line it writes."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            line = await self.process.stdout.readline()
        assert line, "the stand-in ended early"
        told: dict[str, Any] = json.loads(line)
        return told


@contextlib.asynccontextmanager
async def owner(marker: str, **settings: Any) -> AsyncIterator[Owner]:
    """Runs the stand-in (`keeper_owner.py`) until its steps stand; whatever is left after is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "keeper_owner.py"),
        env={**os.environ, "OWNER": json.dumps({"marker": marker, **settings})},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    standin = Owner(process)
    try:
        standin.facts = await standin.tell()
        yield standin
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        for instance in standin.facts.get("instances", ()):
            await sweep_instance(instance)
        leftovers = alive(marker)
        if standin.facts:
            leftovers += [pid for pid in [standin.keeper, *standin.minders] if _is_keepers(pid)]
        for pid in leftovers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await eventually(lambda: all(gone(pid) for pid in leftovers))
        for cgroup in existing(settings.get("token", marker)):
            cgroup.remove()


def _is_keepers(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().startswith("bakemesh-")
    return False


async def nothing_lives(marker: str, *, within: float = 10) -> None:
    """Waits until no process carries the marker."""
    await eventually(lambda: not alive(marker), within=within, what="the death of every process of the tree")


class Components:
    """Components in folders of their own below `home`; each is killed at the end of the `async with`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.instances: list[str] = []

    def spec(self, argv: Sequence[str], name: str = "it", **settings: Any) -> ShimSpec:
        """A new instance of the component of this name; `env` is that of its process."""
        folder = self.home / name
        folder.mkdir(parents=True, exist_ok=True)
        instance = settings.pop("instance", f"{name}-{uuid.uuid4().hex}")
        self.instances.append(instance)
        process = ProcessSpec(argv, settings.pop("env", PATH), folder)
        return ShimSpec(process=process, folder=folder, instance=instance, **settings)

    def text(self, name: str = "it") -> str:
        """What it wrote, not turned over yet."""
        return (self.home / name / "out.log").read_text()

    async def __aenter__(self) -> Components:
        return self

    async def __aexit__(self, *_: object) -> None:
        for instance in self.instances:
            assert not (await sweep_instance(instance)).survivors


async def grow_component(keeper: Keeper, components: Components, kinds: str, n: int, marker: str) -> Shimmed:
    """Launches a zoo as the component `marker`, and waits until it stands."""
    shimmed = await keeper.launch(components.spec(zoo(kinds, n, marker), marker))
    await eventually(lambda: "up" in components.text(marker), what="the tree of the component")
    return shimmed
