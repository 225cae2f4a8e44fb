"""A leaf that is cut off writes on; the hub is complete, in order, each message once, when it is healed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from bakemesh.bus import Bus
from bakemesh.bus.hub import Sources
from bakemesh.bus.kv import Bucket
from bakemesh.bus.reader import read
from bakemesh.bus.streams import ensure_hub, ensure_node_streams
from bakemesh.bus.writer import Outgoing, StreamWriter
from bakemesh.protocol import storage, subjects
from support.nats import MESH, connect, hub_and_leaf
from support.statuses import system_status
from support.waiting import eventually

DATA = subjects.build(MESH, "edge", "nightly", "nightly-demo-1", f"{subjects.BAKE}.Data")


class Following:
    """A reader at work, and what it has read."""

    def __init__(self, bus: Bus, stream: str, wanted: str, *, hub: bool = False) -> None:
        self.found: list[int] = []
        self._bus, self._stream, self._wanted, self._hub = bus, stream, wanted, hub
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        api = self._bus.hub_api if self._hub else self._bus.api
        async with aclosing(read(self._bus, self._stream, self._wanted, api=api)) as messages:
            async for one in messages:
                self.found.append(int(one.payload))

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def put(writer: StreamWriter, first: int, count: int) -> None:
    futures = [
        await writer.put(Outgoing(DATA, f"id-{number}", b"%d" % number))
        for number in range(first, first + count)
    ]
    await asyncio.gather(*futures)


@pytest.mark.timeout(180)
async def test_cut_in_mid_stream_and_healed_the_hub_is_complete_in_order(tmp_path: Path) -> None:
    async with (
        hub_and_leaf(tmp_path, node_id="edge") as pair,
        connect(pair.hub.url, node_id="central", name="nightly") as hub,
        connect(pair.leaf.url, node_id="edge", name="builder") as leaf,
    ):
        await ensure_node_streams(leaf, "edge")
        await ensure_hub(leaf)
        writer = StreamWriter(leaf, storage.data_stream(MESH, "edge"))
        await writer.start(after=0)
        at_hub = Following(hub, storage.hub_data_stream(MESH), DATA)
        at_leaf = Following(leaf, storage.data_stream(MESH, "edge"), DATA)
        across = Following(leaf, storage.hub_data_stream(MESH), DATA, hub=True)
        readers = (at_hub, at_leaf, across)
        try:
            await put(writer, 0, 1000)
            await eventually(lambda: len(at_hub.found) >= 1000, what="the hub's reader following")
            total = 1000
            for _ in range(2):
                await pair.cut()
                await put(writer, total, 2000)  # acknowledged while cut off
                total += 2000
                await eventually(lambda: len(at_leaf.found) == total, what="the leaf's own reader")  # noqa: B023
                assert len(at_hub.found) < total
                await pair.heal()
            for reader in readers:
                await eventually(lambda: len(reader.found) >= total, what="complete", within=60)  # noqa: B023
                assert reader.found == list(range(total))
        finally:
            for reader in readers:
                await reader.stop()
            await writer.close()


@pytest.mark.timeout(180)
async def test_a_killed_leaf_server_in_mid_stream_leaves_the_hub_complete(tmp_path: Path) -> None:
    async with (
        hub_and_leaf(tmp_path, node_id="edge") as pair,
        connect(pair.hub.url, node_id="central", name="nightly") as hub,
        connect(pair.leaf.url, node_id="edge", name="builder") as leaf,
    ):
        await ensure_node_streams(leaf, "edge")
        await ensure_hub(leaf)
        writer = StreamWriter(leaf, storage.data_stream(MESH, "edge"))
        await writer.start(after=0)
        at_hub = Following(hub, storage.hub_data_stream(MESH), DATA)
        try:
            putting = asyncio.create_task(put(writer, 0, 8000))
            await eventually(lambda: len(at_hub.found) > 1000, what="some of it on the hub")
            await pair.leaf.kill()
            await pair.leaf.start()
            await putting
            await eventually(lambda: len(at_hub.found) >= 8000, what="complete", within=90)
            assert at_hub.found == list(range(8000))
        finally:
            await at_hub.stop()
            await writer.close()


@pytest.mark.timeout(180)
async def test_the_source_lists_are_kept_from_a_leaf(tmp_path: Path) -> None:
    """The hub has no Builder of its own: the leaf's holds the lock, loses the hub, and goes on when it is
    back.
    """

    async def announce(bus: Bus, node_id: str) -> None:
        status = system_status(node_id, leaf=True)
        await Bucket(bus, storage.nodes_bucket(MESH)).put(node_id, bus.seal(status).payload)

    async def lists(bus: Bus) -> list[int]:
        streams = (storage.hub_status_stream(MESH), storage.hub_data_stream(MESH))
        infos = [await bus.hub_api.stream_info(stream) for stream in streams]
        return [len(info["config"]["sources"]) for info in infos]

    async with (
        hub_and_leaf(tmp_path, node_id="edge") as pair,
        connect(pair.hub.url, node_id="central") as hub,
        connect(pair.leaf.url, node_id="edge", name="builder") as leaf,
    ):
        await ensure_hub(leaf)
        keeper = Sources(leaf, every_s=0.1)
        await keeper.start()
        try:
            await announce(leaf, "edge")
            await announce(hub, "edge2")

            async def both(count: int) -> bool:
                return await lists(hub) == [count, count]

            await eventually(lambda: both(2), what="both leaves among the sources")
            await pair.cut()
            await announce(hub, "edge3")
            await pair.heal()
            await eventually(lambda: both(3), what="the third one too", within=60)
        finally:
            await keeper.close()
