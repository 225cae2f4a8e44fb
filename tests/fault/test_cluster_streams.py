"""Three servers, three replicas: the stream's leader is killed while it is written and read."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from bakemesh.bus import Bus, BusSettings
from bakemesh.bus.errors import BusError
from bakemesh.bus.reader import read
from bakemesh.bus.sizes import MIB, Sizes
from bakemesh.bus.streams import ensure_node_streams
from bakemesh.bus.writer import Outgoing, StreamWriter
from bakemesh.protocol import storage, subjects
from support.cluster import cluster, leader
from support.nats import MESH
from support.waiting import eventually

DATA = subjects.build(MESH, "alpha", "nightly", "nightly-demo-1", f"{subjects.BAKE}.Data")


async def ready(bus: Bus) -> bool:
    try:
        await ensure_node_streams(bus, "alpha", Sizes(data_bytes=500 * MIB))
    except BusError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_killed_leaders_leave_neither_hole_nor_repeat(tmp_path: Path) -> None:
    count, stream = 12_000, storage.data_stream(MESH, "alpha")
    async with cluster(tmp_path) as servers:
        settings = BusSettings(servers=servers.urls, name="builder", node_id="alpha", connect_timeout_s=30)
        async with await Bus.connect(settings) as bus:
            await eventually(lambda: ready(bus), what="a cluster that takes streams", within=60)
            assert (await bus.api.stream_info(stream))["config"]["num_replicas"] == 3
            writer = StreamWriter(bus, stream)
            await writer.start(after=0)
            futures: list[asyncio.Future[int]] = []
            found: list[int] = []

            async def put() -> None:
                for number in range(count):
                    futures.append(await writer.put(Outgoing(DATA, f"id-{number}", b"%d" % number)))  # noqa: PERF401

            async def follow() -> None:
                async with aclosing(read(bus, stream, DATA)) as messages:
                    async for one in messages:
                        found.append(int(one.payload))  # noqa: PERF401

            following, putting = asyncio.create_task(follow()), asyncio.create_task(put())
            try:
                for part in (1, 2):
                    await eventually(lambda part=part: len(futures) > part * count // 3, what="a third more")  # type: ignore[misc]
                    killed = await eventually(lambda: leader(bus, stream), what="a leader", within=60)
                    await servers.kill(killed)
                    await servers.start(killed)
                async with asyncio.timeout(150):
                    await putting
                    sequences = await asyncio.gather(*futures)
                await eventually(lambda: len(found) >= count, what="all read", within=60)
            finally:
                for task in (following, putting):
                    task.cancel()
                await asyncio.gather(following, putting, return_exceptions=True)
                await writer.close()
            assert found == list(range(count))
            assert sequences == list(range(1, count + 1))
