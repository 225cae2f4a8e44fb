"""Many tiny bakes, one `true` each, on a new state folder: their rate, and whether it stays as they grow.

Every bake goes the whole way: minted, stored in the inbox, journaled, its step started by the keeper, its
Status stored and heard by the SDK up to the terminal. Two peers do a part of it: `subprocess` runs the same
programs one after the other; raw nats-py stores as many messages in a stream, each acknowledged before the
next (as the inbox and a bake's Status are), and another process consumes them.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import subprocess
import time

import common

from bakemesh.bus import Bus, BusSettings
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.supervisor import Supervisor

NODE = "bench"
TINY = '<recipe name="tiny"><cli name="true"><arg>true</arg></cli></recipe>'
STREAM = "peer-tiny"
SUBJECT = "peer.tiny"
SIDE_BY_SIDE = 32
WINDOW = 1000  # bakes at either end whose rates are compared


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


async def measure(count: int, growth: int, turns: int) -> None:
    report = common.Report("tiny_bakes")
    ours, ran, moved, cpu, memory = [], [], [], [], []
    flags = ("--recipe-rate", "100000", "--control-rate", "100000")
    async with (
        common.folder() as where,
        common.server(where) as nats,
        await Bus.connect(BusSettings(servers=(nats.url,), name="bench")) as bus,
        common.node(where, nats.url, *flags) as node,
        Supervisor.connect(nats.url, "nightly") as supervisor,
    ):
        ends: list[float] = []
        for turn in range(turns):
            before, rss = common.cpu_s(node.pid), common.Memory(node.pid)
            took = await bakes(supervisor, count)
            await rss.stop()
            cpu.append((common.cpu_s(node.pid) - before) / count)
            memory.append(rss.highest)
            ours.append(count / took[-1])
            at = ends[-1] if ends else 0.0
            ends += [at + end for end in took]
            each = await stored(bus) / (count * (turn + 1)) + 1  # and the recipe
            ran.append(await asyncio.to_thread(programs, count))
            moved.append(await messages(bus, nats.url, round(count * each)) / each)
        if growth > len(ends):
            before = common.cpu_s(node.pid)
            missing = growth - len(ends)
            took = await bakes(supervisor, missing)
            cpu.append((common.cpu_s(node.pid) - before) / missing)
            memory.append(common.rss_mib(node.pid))
            at = ends[-1]
            ends += [at + end for end in took]
    report.claim("bakes a second", statistics.median(ours))
    report.claim("to the same programs run by subprocess, one after the other", common.ratio(ours, ran))
    report.claim("to raw JetStream moving the same number of messages", common.ratio(ours, moved))
    if len(ends) >= 2 * WINDOW:
        first, last = ends[WINDOW - 1], ends[-1] - ends[-WINDOW - 1]
        report.claim(f"rate of the last {WINDOW} of {len(ends)} to the first", first / last, at_least=0.8)
    report.numbers = {
        "bakes_per_s": ours,
        "programs_per_s": ran,
        "peer_bakes_worth_of_messages_per_s": moved,
        "messages_per_bake": each,
        "builder_cpu_ms_per_bake": [seconds * 1000 for seconds in cpu],
        "builder_rss_mib": memory,
        "rate_of_each_thousand": [
            WINDOW / (ends[n + WINDOW - 1] - (ends[n - 1] if n else 0.0))
            for n in range(0, len(ends) - WINDOW + 1, WINDOW)
        ],
    }
    report.finish()


if __name__ == "__main__":
    args = common.arguments(__doc__, count=1000, growth=10_000, rounds=3)
    if args.role:
        common.run(take(*args.operands), common.loops()[-1])
    else:
        common.run(measure(args.count, args.growth, args.rounds), common.loops()[-1])
