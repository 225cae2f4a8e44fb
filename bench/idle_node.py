"""What a node costs that has nothing to do: CPU of its Builder, and messages on the bus.

A Builder without bakes and components says SystemStatus and Performance every five seconds, renews its claim
and keeps requests waiting at the server. CPU is that of the Builder and of all its processes (the keeper), in
percent of one core; messages are all that go over the bus, answers too. The
promise is 0.5 percent; the same process without heartbeat, SystemStatus and Performance does not exist, so
all of it is counted.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import common
import psutil

CALM_S = 8.0  # the start is over


def all_cpu_s(pid: int) -> float:
    """CPU seconds of a process and what is below it now."""
    found = 0.0
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        times = process.cpu_times()
        found += times.user + times.system
    return found


def switches(pid: int) -> int:
    """How often the process gave the processor up by itself, as good as how often it woke."""
    return int(psutil.Process(pid).num_ctx_switches().voluntary)


async def measure(seconds: int, nodes: int) -> None:
    report = common.Report("idle_node")
    async with common.folder() as where, common.server(where) as nats:
        running = []
        try:
            for number in range(nodes):
                own = where / str(number)
                own.mkdir()
                running.append(await common.builder(own, nats.url, node_id=f"idle{number}"))
            await asyncio.sleep(CALM_S)
            server_pid = nats.pid
            assert server_pid is not None
            began = time.perf_counter()
            before = [(common.cpu_s(each.pid), all_cpu_s(each.pid), switches(each.pid)) for each in running]
            server_before = common.cpu_s(server_pid)
            sent = await _sent(nats.url, seconds)
            wall = time.perf_counter() - began
            found = [
                {
                    "builder_percent": (common.cpu_s(each.pid) - cpu) / wall * 100,
                    "with_its_processes_percent": (all_cpu_s(each.pid) - all_cpu) / wall * 100,
                    "wakes_per_s": (switches(each.pid) - woken) / wall,
                }
                for each, (cpu, all_cpu, woken) in zip(running, before, strict=True)
            ]
            server_share = (common.cpu_s(server_pid) - server_before) / wall * 100 / nodes
        finally:
            await asyncio.gather(*(common.stop(each) for each in running))
    for name, bound in (
        ("builder_percent", None),
        ("with_its_processes_percent", 0.5),
        ("wakes_per_s", None),
    ):
        median = sorted(each[name] for each in found)[len(found) // 2]
        told = name.replace("_", " ")
        report.claim(f"idle node, {told}", median, **({} if bound is None else {"at_most": bound}))
    report.claim("messages a second of a node", sent / wall / nodes)
    report.claim("the server's CPU a node, percent", server_share)
    report.numbers = {"nodes": found, "seconds": wall, "messages": sent, "cpus": os.cpu_count()}
    report.finish()


async def _sent(url: str, seconds: int) -> int:
    """How many messages went over the bus, of any subject, in so many seconds."""
    import nats

    client = await nats.connect(url)
    count = 0

    async def hear(_: Any) -> None:
        nonlocal count
        count += 1

    subscription = await client.subscribe(">", cb=hear)
    await asyncio.sleep(seconds)
    await subscription.unsubscribe()
    await client.close()
    return count


if __name__ == "__main__":
    args = common.arguments(__doc__, seconds=30, nodes=2)
    common.run(measure(args.seconds, args.nodes), common.loops()[-1])
