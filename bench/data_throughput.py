"""One step's Data, from the child's pipe to the SDK, against raw nats-py through a stream of the same kind.

Ours: `cat` of a file in a bake; every byte is journaled by the Builder, acknowledged by JetStream, read from
the stream by the SDK in a process of its own and checked for its seq. The peer: one process publishes 64 KiB
messages with a window of acknowledgements, another one fetches them while they come; a file-backed stream
with the settings of the Builder's own, on the same server. Counted: from the recipe's sending, or the first
publish, to the last byte read. The first, uncounted round compares the bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import statistics
import time
from pathlib import Path

import common

from bakemesh.bus import Bus, BusSettings
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.supervisor import Supervisor

MIB = 2**20
MESSAGE = 64 * 2**10
WINDOW = 256
NODE = "bench"
DATA = f"psyclone-data-{NODE}"
SUBJECT = "peer.data"
STREAM = "peer-data"


# -- the processes


async def take_ours(url: str, source: str, check: str) -> None:
    """The SDK: bakes, and reads to the end."""
    xml = f'<recipe name="copy"><cli name="copy"><arg>cat</arg><arg>{source}</arg></cli></recipe>'
    size, read, seen = Path(source).stat().st_size, 0, hashlib.sha256()
    async with Supervisor.connect(url, "nightly") as supervisor:
        began = time.monotonic()
        bake = await supervisor.bake(xml, node_id=NODE)
        async for chunk in bake.data():
            read += len(chunk.data)
            if check == "check":
                seen.update(chunk.data)
        ended = time.monotonic()
        assert isinstance(await bake.outcome(), BakeSuccess)
    assert read == size, f"{read} of {size} bytes"
    if check == "check":
        assert seen.digest() == hashlib.sha256(Path(source).read_bytes()).digest()
    common.say(began=began, ended=ended)


async def give_peer(url: str, count: str) -> None:
    import nats

    client = await nats.connect(url)
    jetstream = client.jetstream(publish_async_max_pending=WINDOW, timeout=60)
    payload = os.urandom(MESSAGE)
    common.say_ready()
    began = time.monotonic()
    for _ in range(int(count)):
        await jetstream.publish_async(SUBJECT, payload)
    await jetstream.publish_async_completed()
    await client.close()
    common.say(began=began)


async def take_peer(url: str, count: str) -> None:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    client = await nats.connect(url)
    jetstream = client.jetstream(timeout=30)
    # No acknowledgements of the reading: the fastest that it has, and what ours does.
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    reading = await jetstream.pull_subscribe(SUBJECT, stream=STREAM, config=config)
    common.say_ready()
    left = int(count)
    while left:
        left -= len(await reading.fetch(min(left, WINDOW), timeout=30))
    ended = time.monotonic()
    await client.close()
    common.say(ended=ended)


# -- the measurement


async def ours(bus: Bus, url: str, source: Path, check: bool = False) -> float:
    """MiB a second."""
    await bus.api.purge_stream(DATA)
    async with common.role("take_ours", url, source, "check" if check else "-") as reading:
        found = await reading.result()
    return source.stat().st_size / MIB / (found["ended"] - found["began"])


async def peer(bus: Bus, url: str, size: int) -> float:
    """MiB a second."""
    await bus.api.purge_stream(STREAM)
    count = size // MESSAGE
    async with common.role("take_peer", url, count) as taking:
        await taking.ready()
        async with common.role("give_peer", url, count) as giving:
            began = (await giving.result())["began"]
            ended = (await taking.result())["ended"]
    return size / MIB / (ended - began)


async def measure(mib: int, turns: int) -> None:
    report = common.Report("data_throughput")
    flags = ("--store-max-bytes", f"{mib * 2}MiB", "--recipe-rate", "1000")
    async with (
        common.folder() as where,
        common.server(where) as nats,
        common.node(where, nats.url, *flags) as node,
    ):
        source = where / "source"
        source.write_bytes(os.urandom(mib * MIB))
        async with await Bus.connect(BusSettings(servers=(nats.url,), name="bench")) as bus:
            like = (await bus.api.stream_info(DATA))["config"]
            await bus.api.create_stream(
                {key: like[key] for key in ("storage", "retention", "discard", "num_replicas")}
                | {"name": STREAM, "subjects": [SUBJECT], "max_bytes": 2 * mib * MIB}
            )
            await ours(bus, nats.url, source, check=True)
            memory = common.Memory(node.pid)
            busy = common.cpu_s(node.pid)
            found = await common.rounds(
                turns,
                {
                    "ours": lambda: ours(bus, nats.url, source),
                    "peer": lambda: peer(bus, nats.url, mib * MIB),
                },
            )
            busy = common.cpu_s(node.pid) - busy
            await memory.stop()
    report.claim("to raw nats-py", common.ratio(found["ours"], found["peer"]), at_least=0.5)
    # Flat: what is in flight is bounded, whatever the step's output; the first round has filled all of it.
    report.claim(
        "Builder's RSS, highest over that after one round", memory.highest / memory.first, at_most=1.25
    )
    report.numbers = {f"{side}_mib_per_s": rates for side, rates in found.items()}
    report.numbers |= {
        "rss_mib": [memory.first, memory.highest],
        "builder_cpu_s_per_gib": busy / (turns * mib) * 1024,
        "ours_median_mib_per_s": statistics.median(found["ours"]),
    }
    report.finish()


ROLES = {each.__name__: each for each in (take_ours, give_peer, take_peer)}

if __name__ == "__main__":
    args = common.arguments(__doc__, mib=256, rounds=5)
    if args.role:
        common.run(ROLES[args.role](*args.operands), common.loops()[-1])
    else:
        asyncio.run(measure(args.mib, args.rounds))
