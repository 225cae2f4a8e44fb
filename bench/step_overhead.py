"""What a step costs above its program, and what a Builder costs that has nothing to do.

Overhead: a bake of many `true` steps, one after the other, against `subprocess.run` of the same program with
its two pipes; the difference by the number of steps. A step is journaled at both ends, said on Status twice,
and its process tree is swept. Idle: bakes that sleep in their step while each says a heartbeat at the default
interval; CPU of the Builder, and of all its processes (keeper, minders), in percent of one core.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import time
from pathlib import Path

import common
import psutil

from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.supervisor import Supervisor

NODE = "bench"
SLEEPS = 3600
CALM_S = 3.0


async def steps(supervisor: Supervisor, count: int) -> float:
    """Milliseconds a step."""
    xml = '<recipe name="many">' + '<cli name="s{}"><arg>true</arg></cli>' * count + "</recipe>"
    began = time.perf_counter()
    bake = await supervisor.bake(xml.format(*range(count)), node_id=NODE)
    assert isinstance(await bake.outcome(), BakeSuccess)
    return (time.perf_counter() - began) / count * 1000


async def plain(count: int) -> float:
    """Milliseconds a program."""

    def run() -> None:
        for _ in range(count):
            subprocess.run(["true"], check=True, capture_output=True)

    began = time.perf_counter()
    await asyncio.to_thread(run)
    return (time.perf_counter() - began) / count * 1000


def all_cpu_s(pid: int) -> float:
    """CPU seconds of a process and what is below it now."""
    found = 0.0
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        times = process.cpu_times()
        found += times.user + times.system
    return found


async def idle(where: Path, url: str, bakes: int, seconds: int) -> dict[str, float]:
    """Percent of a core, over `seconds`, of a Builder with sleeping bakes."""
    flags = ("--max-bakes", str(bakes), "--recipe-rate", "10000")
    xml = f'<recipe name="idle"><cli name="sleep"><arg>sleep</arg><arg>{SLEEPS}</arg></cli></recipe>'
    own = where / "idle"
    own.mkdir()
    async with (
        common.node(own, url, *flags, node_id="idle") as node,
        Supervisor.connect(url, "idler") as supervisor,
    ):
        running = [await supervisor.bake(xml, node_id="idle") for _ in range(bakes)]
        for bake in running:
            async for status in bake.status():
                if status.kind == "step":
                    break
        await asyncio.sleep(CALM_S)
        began = time.perf_counter()
        before, before_all = common.cpu_s(node.pid), all_cpu_s(node.pid)
        await asyncio.sleep(seconds)
        wall = time.perf_counter() - began
        found = {
            "builder": (common.cpu_s(node.pid) - before) / wall * 100,
            "with its processes": (all_cpu_s(node.pid) - before_all) / wall * 100,
            "bakes": len(running),
        }
        heard = sum(bake.latest.serial for bake in running if bake.latest is not None)
        assert heard > 2 * bakes, "no heartbeat was heard"
        await asyncio.gather(*(bake.cancel() for bake in running))
        await asyncio.gather(*(bake.outcome() for bake in running))
    return found


async def measure(count: int, turns: int, bakes: int, seconds: int) -> None:
    report = common.Report("step_overhead")
    async with common.folder() as where, common.server(where) as nats:
        flags = ("--recipe-rate", "1000")
        async with (
            common.node(where, nats.url, *flags),
            Supervisor.connect(nats.url, "nightly") as supervisor,
        ):
            await steps(supervisor, 10)
            found = await common.rounds(
                turns, {"ours": lambda: steps(supervisor, count), "plain": lambda: plain(count)}
            )
        resting = await idle(where, nats.url, bakes, seconds)
    over = [ours - theirs for ours, theirs in zip(found["ours"], found["plain"], strict=True)]
    report.claim("overhead of a step, ms", statistics.median(over))
    report.claim("a step to plain subprocess, times", common.ratio(found["ours"], found["plain"]))
    report.claim(f"Builder with {bakes} idle bakes, percent of a core", resting["builder"])
    report.claim("the same with its keeper and minders", resting["with its processes"])
    report.numbers = {f"{side}_ms": each for side, each in found.items()}
    report.numbers |= {"idle": resting, "cpus": os.cpu_count()}
    report.finish()


if __name__ == "__main__":
    args = common.arguments(__doc__, count=100, rounds=5, bakes=200, seconds=20)
    common.run(measure(args.count, args.rounds, args.bakes, args.seconds), common.loops()[-1])
