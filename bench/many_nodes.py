"""Many nodes on one server: bring-up, what each costs once all of them bake, growth; and many dashboards.

Every node is a whole Builder (`service.run`) with a state folder, streams, a claim and a keeper process of
its own, at most `--per` of them in one Python process, and each runs a bake whose step is a process. The
server is the product's own, with its monitoring port open; messages and bytes are the server's counts, in
and out. Growth: what a node costs among the most, against what it costs among the fewest, in the same run.
Dashboards are connections, each subscribed to the Status of one node; then one that hangs is added, with many
subscriptions. Left out: nodes on hosts of their own, and leaves.

    .venv/bin/python bench/many_nodes.py                       # 10, 50, 100 and 200 nodes, 2,000 dashboards
    .venv/bin/python bench/many_nodes.py --most 50 --dashboards 200 --seconds 10
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import common
import psutil

from bakemesh.bus.server import find_server
from bakemesh.bus.server_config import ServerConfig, render
from bakemesh.protocol import subjects
from bakemesh.supervisor import Supervisor

sys.path.insert(
    0, str(Path(__file__).parent.parent / "tests")
)  # the tests' nodes and dashboards, the same ones

from support.simulated import dashboards, simulated, stuck_dashboard

MESH = "psyclone"
SIZES = (10, 50, 100, 200)
CUT_S = 120.0  # the server cuts a reader that takes nothing for 10 s, or has 64 MiB to come
CALM_S = 8.0  # what the start and the recipes left behind is over
RECIPE = '<recipe name="bench"><cli name="long" command="sleep 100000"/></recipe>'
BEATING = '<recipe name="beat" status-interval-ms="1000"><cli name="long" command="sleep 100000"/></recipe>'


class Server:
    """A nats-server with its monitoring open."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, http: str) -> None:
        self.process, self.url, self._http = process, url, http

    @property
    def pid(self) -> int:
        return self.process.pid

    async def counts(self) -> dict[str, Any]:
        """Its /varz."""

        def get() -> dict[str, Any]:
            with urllib.request.urlopen(f"{self._http}/varz", timeout=30) as answer:
                return dict(json.load(answer))

        return await asyncio.to_thread(get)


@asynccontextmanager
async def watched_server(where: Path) -> AsyncIterator[Server]:
    """The product's own configuration, and a monitoring port."""
    ports = []
    for _ in range(2):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            ports.append(one.getsockname()[1])
    config = ServerConfig("bench", where / "nats", port=ports[0])
    config.ports_folder.mkdir(parents=True)
    file = where / "nats.conf"
    file.write_text(render(config) + f'http: "127.0.0.1:{ports[1]}"\n')
    process = await asyncio.create_subprocess_exec(str(find_server()), "-c", str(file))
    running = Server(process, f"nats://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}")
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    await running.counts()
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        yield running
    finally:
        process.terminate()
        await process.wait()


# -- the nodes' own process


async def nodes_role(url: str, folder: str, first: str, count: str, total: str) -> None:
    """Runs `count` nodes until its stdin ends; says when each was ready."""
    names = [f"n{int(first) + number}" for number in range(int(count))]
    began = time.perf_counter()
    readys: list[float] = []
    async with simulated(
        Path(folder),
        url,
        names,
        nodes_expected=int(total),
        ready=lambda _: readys.append(time.perf_counter() - began),
    ) as nodes:
        common.say(readys=readys)

        async def nothing() -> None:
            pass

        await common.on_command(nothing)
        runs = sum(node.runs for node in nodes.values())
    common.say(runs=runs)


# -- one size


def below(pids: list[int]) -> list[psutil.Process]:
    """The processes and what is below them."""
    found = []
    for pid in pids:
        itself = psutil.Process(pid)
        found += [itself, *itself.children(recursive=True)]
    return found


def used(processes: list[psutil.Process]) -> tuple[float, float]:
    """(CPU seconds, MiB of their own: unique set size) of those that live."""
    cpu = own = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
            cpu += times.user + times.system
            own += process.memory_full_info().uss / 2**20
        except psutil.NoSuchProcess:
            continue
    return cpu, own


@asynccontextmanager
async def system(
    where: Path, count: int, per: int
) -> AsyncIterator[tuple[Server, list[common.Role], dict[str, Any]]]:
    """So many nodes on a server; and how their bring-up was."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(watched_server(where))
        began = time.perf_counter()
        roles = []
        for first in range(0, count, per):
            given = (server.url, where, first, min(per, count - first), count)
            roles.append(await stack.enter_async_context(common.role("nodes", *given)))
        told = [await each.said() for each in roles]
        took = time.perf_counter() - began
        cpu = used(below([each.pid for each in roles]))[0]
        readys = [ready for each in told for ready in each["readys"]]
        try:
            yield (
                server,
                roles,
                {
                    "bringup_s": took,
                    "bringup_cpu_s": cpu,
                    "bringup_server_cpu_s": common.cpu_s(server.pid),
                    "node_ready_s_p50": common.percentile(readys, 0.5),
                },
            )
        finally:
            for each in roles:
                if each.process.stdin is not None:
                    each.process.stdin.close()
            ends = await asyncio.gather(*(each.said() for each in roles), return_exceptions=True)
            runs = sum(end.get("runs", 0) for end in ends if isinstance(end, dict))
            if runs != count:
                print(
                    f"{count} Builders were run {runs} times: the machine was too busy for them",
                    file=sys.stderr,
                )
            await asyncio.gather(*(each.process.wait() for each in roles))


async def bake_everywhere(boss: Supervisor, count: int, xml: str) -> dict[str, Any]:
    """A running bake on each node."""
    began = time.perf_counter()
    bakes = [await boss.bake(xml, node_id=f"n{number}") for number in range(count)]
    for bake in bakes:
        async for status in bake.status():
            if status.kind == "step":
                break
    return {"recipes_s": time.perf_counter() - began, "bakes": len(bakes)}


async def one_size(count: int, per: int, seconds: int) -> dict[str, Any]:
    async with common.folder() as where, system(where, count, per) as (server, roles, found):
        async with Supervisor.connect(nats=server.url, name="boss") as boss:
            found |= await bake_everywhere(boss, count, RECIPE)
            nodes = [node for node in await boss.nodes() if node.alive]
        if len(nodes) != count:
            raise SystemExit(f"{len(nodes)} of {count} nodes are alive")
        await asyncio.sleep(CALM_S)
        processes = below([each.pid for each in roles])
        before, began = await server.counts(), time.perf_counter()
        cpu_before, server_before = used(processes)[0], common.cpu_s(server.pid)
        await asyncio.sleep(seconds)
        wall = time.perf_counter() - began
        after = await server.counts()
        cpu, own_mib = used(processes)
        found |= {
            "nodes": count,
            "processes": len(processes),
            "nodes_cpu_percent": (cpu - cpu_before) / wall * 100,
            "server_cpu_percent": (common.cpu_s(server.pid) - server_before) / wall * 100,
            "own_mib": own_mib,
            "server_rss_mib": common.rss_mib(server.pid),
            "connections": after["connections"],
            "subscriptions": after["subscriptions"],
            **{
                f"{key}_per_s": (after[key] - before[key]) / wall
                for key in ("in_msgs", "out_msgs", "in_bytes", "out_bytes")
            },
        }
        return found


# -- dashboards


async def boards(count: int, nodes: int, per: int, seconds: int) -> dict[str, Any]:
    """Status to `count` dashboards, first without, then with one beside them that hangs."""
    async with common.folder() as where, system(where, nodes, per) as (server, _, _):
        wanted = [f"{MESH}.n{number % nodes}.*.*.{subjects.BAKE}.*" for number in range(count)]
        async with (
            Supervisor.connect(nats=server.url, name="boss") as boss,
            dashboards(server.url, wanted) as made,
        ):
            await bake_everywhere(boss, nodes, BEATING)
            await asyncio.sleep(CALM_S)
            calm = await watch(server, made, seconds)
            with stuck_dashboard(server.url, f"{MESH}.*.*.*.{subjects.BAKE}.*", windows=200):
                hung = await watch(server, made, CUT_S, cut=True)
            if any(board.lost for board in made):
                raise SystemExit("the server cut a dashboard that reads")
            return {"dashboards": count, "nodes": nodes, "calm": calm, "one_hangs": hung}


async def watch(server: Server, made: list[Any], seconds: float, cut: bool = False) -> dict[str, Any]:
    """What came to each in so long, or until the server has cut somebody. A node's heartbeat is one a second,
    so each should have as many.
    """
    before, cpu, began = [board.count for board in made], common.cpu_s(server.pid), time.perf_counter()
    slow = 0
    while not slow and (left := began + seconds - time.perf_counter()) > 0:
        await asyncio.sleep(min(left, 2.0))
        slow = (await server.counts())["slow_consumers"] if cut else 0
    wall = time.perf_counter() - began
    came = [(board.count - earlier) / wall for board, earlier in zip(made, before, strict=True)]
    return {
        "seconds": wall,
        "messages_per_s": sum(came),
        "a_board_per_s_least": min(came),
        "a_board_per_s_median": common.percentile(came, 0.5),
        "server_cpu_percent": (common.cpu_s(server.pid) - cpu) / wall * 100,
        "slow_consumers": slow,
    }


async def measure(args: Any) -> None:
    report = common.Report("many_nodes")
    sizes = [size for size in SIZES if size <= args.most]
    found = [await one_size(size, args.per, args.seconds) for size in sizes]
    few, most = found[0], found[-1]
    report.claim(f"bring-up of {most['nodes']} nodes, s", most["bringup_s"])
    for name, key in (
        ("messages in a second", "in_msgs_per_s"),
        ("messages out a second", "out_msgs_per_s"),
        ("bytes out a second", "out_bytes_per_s"),
        ("CPU percent", "nodes_cpu_percent"),
        ("the server's CPU percent", "server_cpu_percent"),
        ("MiB of their own", "own_mib"),
        ("bring-up, s", "bringup_s"),
        ("bring-up, CPU s", "bringup_cpu_s"),
    ):
        report.claim(f"a node among {most['nodes']}, {name}", most[key] / most["nodes"])
        bound = 1.25 if key in ("in_msgs_per_s", "out_msgs_per_s") else None
        report.claim(
            f"growth {few['nodes']} → {most['nodes']}, a node's {name}",
            (most[key] / most["nodes"]) / (few[key] / few["nodes"]),
            at_most=bound,
        )
    seen = await boards(args.dashboards, min(20, args.most), args.per, args.seconds)
    report.claim(
        f"{seen['dashboards']} dashboards, the slowest one's rate while another hangs / before",
        seen["one_hangs"]["a_board_per_s_least"] / seen["calm"]["a_board_per_s_least"],
        at_least=0.9,
    )
    if not seen["one_hangs"]["slow_consumers"]:
        raise SystemExit("the server did not cut the dashboard that hangs")
    report.claim("seconds until the server cut it", seen["one_hangs"]["seconds"])
    report.numbers = {"sizes": found, "dashboards": seen, "cpus": os.cpu_count()}
    report.finish()


if __name__ == "__main__":
    args = common.arguments(__doc__, most=200, per=20, dashboards=2000, seconds=15)
    if args.role == "nodes":
        common.run(nodes_role(*args.operands), common.loops()[-1])
    else:
        common.run(measure(args))
