"""Many tiny bakes, one `true` each, on a new state folder: their rate, and whether it stays as they get more.

Every bake goes the whole way: minted, stored in the inbox, journaled, its step started by the keeper, its
Status stored and heard by the SDK up to the terminal. Two peers do a part of it: `subprocess` runs the same
programs one after the other; raw nats-py stores as many messages in a stream, each acknowledged before the
next (as the inbox and a bake's Status are), and another process consumes them. Growth: the first Builder's
last thousand, in turns with the first thousand of a second one, new like its server: so both meet the same
moments of the machine.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import common

from bakemesh.bus import Bus, BusSettings
from bakemesh.bus.server import EmbeddedServer
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.supervisor import Supervisor

NODE = "bench"
TINY = '<recipe name="tiny"><cli name="true"><arg>true</arg></cli></recipe>'
STREAM = "peer-tiny"
SUBJECT = "peer.tiny"
SIDE_BY_SIDE = 32
WINDOW = 1000  # bakes at either end whose rates are compared
GROWTH_TURNS = 5
FLAGS = ("--recipe-rate", "100000", "--control-rate", "100000")


async def bakes(supervisor: Supervisor, count: int) -> list[float]:
    """When each of `count` bakes had ended, in seconds from the begin."""
    ends: list[float] = []
    numbers = itertools.count()
    began = time.perf_counter()

    async def work() -> None:
        while next(numbers) < count:
            bake = await supervisor.bake(TINY, node_id=NODE)
            assert isinstance(await bake.outcome(), BakeSuccess)
            ends.append(time.perf_counter() - began)

    await asyncio.gather(*(work() for _ in range(SIDE_BY_SIDE)))
    return ends


def programs(count: int) -> float:
    """Runs a second."""
    began = time.perf_counter()
    for _ in range(count):
        subprocess.run(["true"], check=True, capture_output=True)
    return count / (time.perf_counter() - began)


async def take(url: str, count: str) -> None:
    """The peer's consumer."""
    import nats

    client = await nats.connect(url)
    reading = await client.jetstream().pull_subscribe(SUBJECT, durable="taking", stream=STREAM)
    common.say_ready()
    left = int(count)
    while left:
        for msg in await reading.fetch(min(left, 64), timeout=30):
            await msg.ack()
            left -= 1
    ended = time.monotonic()
    await client.drain()
    common.say(ended=ended)


async def messages(bus: Bus, url: str, count: int) -> float:
    """Messages a second, stored one by one and consumed."""
    import nats

    await bus.api.create_stream({"name": STREAM, "subjects": [SUBJECT], "storage": "file"})
    client = await nats.connect(url)
    jetstream = client.jetstream()
    async with common.role("take", url, count) as taking:
        await taking.ready()
        began = time.monotonic()
        for _ in range(count):
            await jetstream.publish(SUBJECT, b"x" * 300)
        ended = (await taking.result())["ended"]
    await client.close()
    await bus.api.delete_stream(STREAM)
    return count / (ended - began)


async def stored(bus: Bus) -> int:
    """How many Status and outcomes are in the stream."""
    info = await bus.api.stream_info(f"psyclone-status-{NODE}")
    return int(info["state"]["messages"])


@dataclass
class House:
    """A server, a Builder and a Supervisor, all new."""

    nats: EmbeddedServer
    node: common.Role
    supervisor: Supervisor
    baked: int = 0
    cpu_ms: list[float] = field(default_factory=list)  # of the Builder, a bake

    async def bake(self, count: int) -> list[float]:
        """Bakes so many; when each had ended."""
        before = common.cpu_s(self.node.pid)
        ends = await bakes(self.supervisor, count)
        self.cpu_ms.append((common.cpu_s(self.node.pid) - before) / count * 1000)
        self.baked += count
        return ends

    async def rate(self, count: int) -> float:
        """Bakes a second."""
        return count / (await self.bake(count))[-1]


@asynccontextmanager
async def house(where: Path) -> AsyncIterator[House]:
    """One, in a folder of its own."""
    where.mkdir()
    async with (
        common.server(where) as nats,
        common.node(where, nats.url, *FLAGS) as node,
        Supervisor.connect(nats.url, "nightly") as supervisor,
    ):
        yield House(nats, node, supervisor)


async def grow(report: common.Report, where: Path, old: House, growth: int) -> None:
    """Bakes until `growth`; the last WINDOW in turns with a new house."""
    thousands = []
    while old.baked < growth - WINDOW:
        thousands.append(await old.rate(min(WINDOW, growth - WINDOW - old.baked)))
    report.numbers["rate_of_each_thousand"] = thousands
    report.numbers["builder_rss_mib"] = [report.numbers["builder_rss_mib"][0], common.rss_mib(old.node.pid)]
    async with house(where / "new") as new:
        each = WINDOW // GROWTH_TURNS
        found = await common.rounds(
            GROWTH_TURNS, {"old": lambda: old.rate(each), "new": lambda: new.rate(each)}
        )
        report.numbers["last_and_first_thousand_cpu_ms"] = [
            statistics.median(one.cpu_ms[-GROWTH_TURNS:]) for one in (old, new)
        ]
    report.numbers["last_per_s"], report.numbers["first_per_s"] = found["old"], found["new"]
    ratio = common.ratio(found["old"], found["new"])
    report.claim(f"rate of the last {WINDOW} of {old.baked} to the first", ratio, at_least=0.8)


async def measure(count: int, growth: int, turns: int) -> None:
    report = common.Report("tiny_bakes")
    ours: list[float] = []
    ran: list[float] = []
    moved: list[float] = []
    async with (
        common.folder() as where,
        house(where / "old") as old,
        await Bus.connect(BusSettings(servers=(old.nats.url,), name="bench")) as bus,
    ):
        rss = common.Memory(old.node.pid)
        for _ in range(turns):
            ours.append(await old.rate(count))
            each = await stored(bus) / old.baked + 1  # and the recipe
            ran.append(await asyncio.to_thread(programs, count))
            moved.append(await messages(bus, old.nats.url, round(count * each)) / each)
        await rss.stop()
        report.claim("bakes a second", statistics.median(ours))
        report.claim("to the same programs run by subprocess, one after the other", common.ratio(ours, ran))
        report.claim("to raw JetStream moving the same number of messages", common.ratio(ours, moved))
        report.numbers = {
            "bakes_per_s": ours,
            "programs_per_s": ran,
            "peer_bakes_worth_of_messages_per_s": moved,
            "messages_per_bake": each,
            "builder_cpu_ms_per_bake": list(old.cpu_ms),
            "builder_rss_mib": [rss.highest],
        }
        if growth > old.baked + WINDOW:
            await grow(report, where, old, growth)
    report.finish()


if __name__ == "__main__":
    args = common.arguments(__doc__, count=1000, growth=10_000, rounds=3)
    if args.role:
        common.run(take(*args.operands), common.loops()[-1])
    else:
        common.run(measure(args.count, args.growth, args.rounds), common.loops()[-1])
