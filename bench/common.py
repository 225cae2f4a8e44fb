"""What every bench shares: a server, role processes, rounds, and the two lines that a bench prints.

A bench compares ours with a named peer in the same run: both take turns round after round, so that what the
machine does meanwhile hits both, and the number is the median of the rounds' ratios. Left out: absolute
numbers worth keeping. They are printed, but only the ratios mean anything on another machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bakemesh.bus.server import EmbeddedServer

RESULTS = Path(__file__).parent / "results"
READY_S = 30.0
ROLE_S = 180.0


@asynccontextmanager
async def folder() -> AsyncIterator[Path]:
    """A folder on the disk for one run, removed after it. BENCH_FOLDER says on which."""
    with tempfile.TemporaryDirectory(prefix="bakemesh-bench-", dir=os.environ.get("BENCH_FOLDER")) as made:
        yield Path(made)


@asynccontextmanager
async def server(where: Path) -> AsyncIterator[EmbeddedServer]:
    """The server that ours and the peer share: the product's own, with its settings."""
    running = EmbeddedServer(where / "nats", "bench")
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


class Role:
    """A process of this bench's own script; it says `ready`, then one line of JSON, and ends."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self.process, self.name = process, name

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ready(self) -> None:
        """Returns when it said that it is ready."""
        await self._line(READY_S, b"ready")

    async def go(self) -> None:
        """Lets a role of `on_command` do its work once more."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        await self.process.stdin.drain()

    async def said(self) -> dict[str, Any]:
        """Its next line of JSON."""
        return dict(json.loads(await self._line(ROLE_S, b"{")))

    async def result(self) -> dict[str, Any]:
        """Its line of JSON, once it has ended."""
        line = await self._line(ROLE_S, b"{")
        await self.process.wait()
        return dict(json.loads(line))

    async def _line(self, seconds: float, begins: bytes) -> bytes:
        assert self.process.stdout is not None
        async with asyncio.timeout(seconds):
            while line := await self.process.stdout.readline():
                if line.startswith(begins):
                    return line
        raise RuntimeError(f"role {self.name} ended with {await self.process.wait()} and no {begins!r} line")

    async def end(self) -> None:
        """Ends it if it has not."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@asynccontextmanager
async def role(name: str, *arguments: object) -> AsyncIterator[Role]:
    """Runs the calling bench's script as `name`; its stderr is ours."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        sys.argv[0],
        "--role",
        name,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    started = Role(process, name)
    try:
        yield started
    finally:
        await started.end()


def say_ready() -> None:
    """For a role: what it waits for may come now."""
    print("ready", flush=True)


def say(**values: Any) -> None:
    """For a role: its result."""
    print(json.dumps(values), flush=True)


async def on_command(work: Callable[[], Awaitable[None]]) -> None:
    """For a role: does `work` for each `go`, until there are no more."""
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        await work()


def run(work: Coroutine[Any, Any, None], loop: str = "asyncio") -> None:
    """Runs a coroutine on asyncio's own loop or on uvloop."""
    if loop == "uvloop":
        import uvloop

        uvloop.run(work)
    else:
        asyncio.run(work)


def loops() -> tuple[str, ...]:
    """The loops that are here."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return ("asyncio",)
    return ("asyncio", "uvloop")


async def builder(where: Path, url: str, *flags: str, node_id: str = "bench") -> Role:
    """A Builder in a process of its own on a new state folder; ready when this returns."""
    with (where / "builder.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bakemesh.builder", "--nats", url, "--node", node_id),
            *("--state", str(where / "builder"), *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    started = Role(process, "builder")
    try:
        await started.ready()
    except BaseException:
        print((where / "builder.log").read_text()[-2000:], file=sys.stderr)
        await started.end()
        raise
    return started


async def stop(process: Role) -> None:
    """Ends a Builder as its operator would."""
    if process.process.returncode is None:
        process.process.terminate()
        try:
            async with asyncio.timeout(20):
                await process.process.wait()
        except TimeoutError:
            await process.end()


@asynccontextmanager
async def node(where: Path, url: str, *flags: str, node_id: str = "bench") -> AsyncIterator[Role]:
    """A Builder for as long as the block runs."""
    running = await builder(where, url, *flags, node_id=node_id)
    try:
        yield running
    finally:
        await stop(running)


class Memory:
    """The highest RSS of a process while it is watched, in MiB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.first = self.highest = rss_mib(pid)
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self.highest = max(self.highest, rss_mib(self._pid))

    async def stop(self) -> None:
        """Ends the watch."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def rss_mib(pid: int) -> float:
    """What a process has in memory now, MiB."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20


def cpu_s(pid: int) -> float:
    """User and system seconds of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def rounds(count: int, sides: dict[str, Callable[[], Awaitable[float]]]) -> dict[str, list[float]]:
    """Every side once a round, in turns that begin with another one each time."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(count):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            found[name].append(await sides[name]())
    return found


def ratio(ours: Sequence[float], peer: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(ours, peer, strict=True))


@dataclass
class Claim:
    """One number that is promised. `at_least`: whether more is better."""

    name: str
    value: float
    bound: float | None
    at_least: bool = True

    @property
    def holds(self) -> bool | None:
        """Whether it is met; None where nothing was promised."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass
class Report:
    """What a bench found: claims, and numbers for whoever looks closer."""

    bench: str
    claims: list[Claim] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def claim(
        self, name: str, value: float, *, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        """Adds one; without a bound it is told only."""
        bound = at_least if at_least is not None else at_most
        self.claims.append(Claim(name, value, bound, at_most is None))

    def finish(self) -> None:
        """Prints a line for people and one for programs, and keeps the latter in `bench/results/`."""
        for each in self.claims:
            wanted = ""
            if each.bound is not None:
                wanted = f"  ({'at least' if each.at_least else 'at most'} {each.bound:g}: "
                wanted += f"{'holds' if each.holds else 'MISSED'})"
            print(f"{self.bench}: {each.name}: {each.value:.3g}{wanted}")
        found = {
            "bench": self.bench,
            "claims": [
                {"name": each.name, "value": round(each.value, 4), "bound": each.bound, "holds": each.holds}
                for each in self.claims
            ],
            "numbers": self.numbers,
        }
        line = json.dumps(found, default=lambda value: round(value, 4))
        print(line, flush=True)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self.bench}.json").write_text(line + "\n")


def arguments(description: str | None, **numbers: int) -> argparse.Namespace:
    """The command line of a bench: `--role` and its operands for its own processes, and its numbers."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("operands", nargs="*", help=argparse.SUPPRESS)
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    return parser.parse_args()
