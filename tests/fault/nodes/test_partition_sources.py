"""The hub draws at once from a leaf that is back, from where its copy ends: nothing is lost or there twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.hub import Sources
from bakemesh.bus.kv import Bucket
from bakemesh.bus.purge import purge_subject
from bakemesh.bus.returning import silent
from bakemesh.bus.streams import ensure_hub, ensure_node_streams
from bakemesh.bus.writer import Outgoing, StreamWriter
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.builder.messages import SystemStatus
from support.nats import MESH, HubAndLeaf, connect, hub_and_leaf
from support.waiting import eventually

EDGE = subjects.build(MESH, "edge", "nightly", "nightly-demo-1", f"{subjects.BAKE}.Data")
HUB_DATA = storage.hub_data_stream(MESH)


@contextlib.asynccontextmanager
async def beating(bus: Bus) -> AsyncIterator[None]:
    """The leaf's sign of life, as its Builder gives it."""
    status = SystemStatus(
        node="edge",
        node_id="edge",
        boot="b",
        bakes=0,
        queued=0,
        load=0.0,
        draining=False,
        configcomplete=True,
        version="0",
        protocols=[],
        stepkinds=[],
        components=[],
        leaf=True,
    )
    subject = subjects.build(MESH, "edge", "builder-edge", "-", subjects.SYSTEM_STATUS)

    async def beat() -> None:
        while True:
            with contextlib.suppress(BusError):
                await bus.publish(subject, status)
                await Bucket(bus, storage.nodes_bucket(MESH), timeout=0.5).put(
                    "edge", bus.seal(status).payload
                )
            await asyncio.sleep(0.3)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def put(writer: StreamWriter, numbers: range) -> None:
    futures = [await writer.put(Outgoing(EDGE, f"id-{n}", b"%d" % n)) for n in numbers]
    await asyncio.gather(*futures)


async def at_hub(hub: Bus) -> list[int]:
    """What the hub holds, in its order."""
    state = (await hub.api.stream_info(HUB_DATA))["state"]
    sequences = range(max(1, int(state["first_seq"])), int(state["last_seq"]) + 1)
    return [int((await hub.api.get_message(HUB_DATA, sequence=n)).payload) for n in sequences]


async def start_of(hub: Bus) -> int | None:
    """From which sequence on the hub was told to draw."""
    source: dict[str, Any] = (await hub.api.stream_info(HUB_DATA))["config"]["sources"][0]
    return source.get("opt_start_seq")


async def cut_until_silent(pair: HubAndLeaf, hub: Bus, how: str) -> None:
    await (pair.cut() if how == "cut" else asyncio.sleep(0, pair.link.stall()))

    async def fell_silent() -> bool:
        return silent(await hub.api.stream_info(HUB_DATA)) == {"edge"}

    await eventually(fell_silent, what="the hub hearing nothing of the leaf", within=30)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["cut", "stall"])
async def test_a_leaf_that_is_back_is_asked_at_once_from_where_the_copy_ends(
    how: str, tmp_path: Path
) -> None:
    async with (
        hub_and_leaf(tmp_path, node_id="edge") as pair,
        connect(pair.hub.url, node_id="central", name="nightly") as hub,
        connect(pair.leaf.url, node_id="edge", name="builder") as leaf,
    ):
        await ensure_node_streams(leaf, "edge")
        await ensure_hub(leaf)
        writer = StreamWriter(leaf, storage.data_stream(MESH, "edge"))
        await writer.start(after=0)
        keeper = Sources(hub, every_s=0.2)
        await keeper.start()

        async def holds(wanted: list[int]) -> bool:
            return await at_hub(hub) == wanted

        async def told(start: int) -> bool:
            return await start_of(hub) == start

        try:
            async with beating(leaf):
                await put(writer, range(100))
                await eventually(lambda: holds(list(range(100))), what="the hub's copy")
                await cut_until_silent(pair, hub, how)
                await put(writer, range(100, 300))
                await pair.heal()
                # The server's own second try would not say from where.
                await eventually(lambda: told(101), what="the source put in again", within=30)
                await eventually(lambda: holds(list(range(300))), what="all of it, once", within=30)
                await cut_until_silent(pair, hub, how)
                await purge_subject(hub, HUB_DATA, EDGE)  # as the janitor does with what is old
                await put(writer, range(300, 400))
                await pair.heal()
                await eventually(lambda: told(301), what="the source put in again", within=30)
                await eventually(
                    lambda: holds(list(range(300, 400))), what="what was purged stays away", within=30
                )
        finally:
            await keeper.close()
            await writer.close()
