"""The hub draws at once from a leaf that is back, from where its copy ends: nothing lost or there twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.hub import Sources
from bakemesh.bus.kv import Bucket
from bakemesh.bus.purge import purge_subject
from bakemesh.bus.returning import put_in_again
from bakemesh.bus.streams import ensure_hub, ensure_node_streams
from bakemesh.bus.writer import Outgoing, StreamWriter
from bakemesh.protocol import storage, subjects
from support.nats import MESH, HubAndLeaf, connect, hub_and_leaf
from support.statuses import system_status
from support.waiting import eventually

EDGE = subjects.build(MESH, "edge", "nightly", "nightly-demo-1", f"{subjects.BAKE}.Data")
HUB_DATA = storage.hub_data_stream(MESH)
GIVEN_UP_NS = 18_000_000_000
SOON_S = 12  # the server alone takes 27


@contextlib.asynccontextmanager
async def beating(bus: Bus) -> AsyncIterator[None]:
    """The leaf's sign of life, as its Builder gives it."""
    status = system_status("edge", leaf=True)
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


async def cut_for_long(pair: HubAndLeaf, hub: Bus, how: str) -> None:
    await (pair.cut() if how == "cut" else asyncio.sleep(0, pair.link.stall()))

    async def given_up() -> bool:
        # By then the server has tried in vain, and would try again only many seconds after the leaf is back.
        source = (await hub.api.stream_info(HUB_DATA))["sources"][0]
        return int(source["active"]) > GIVEN_UP_NS

    await eventually(given_up, what="the hub without hope for the leaf", within=60)


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

        try:
            async with beating(leaf):
                await put(writer, range(100))
                await eventually(lambda: holds(list(range(100))), what="the hub's copy")
                await cut_for_long(pair, hub, how)
                await put(writer, range(100, 300))
                await pair.heal()
                await eventually(lambda: holds(list(range(300))), what="all of it, once", within=SOON_S)
                await cut_for_long(pair, hub, how)
                await purge_subject(hub, HUB_DATA, EDGE)  # as the janitor does with what is old
                await put(writer, range(300, 400))
                await pair.heal()
                await eventually(lambda: holds(list(range(300, 400))), what="only the new", within=SOON_S)
        finally:
            await keeper.close()
            await writer.close()


@pytest.mark.timeout(120)
async def test_a_source_is_put_in_again_in_full_flow_without_a_loss_or_a_repeat(tmp_path: Path) -> None:
    stream = storage.data_stream(MESH, "edge")
    async with (
        hub_and_leaf(tmp_path, node_id="edge") as pair,
        connect(pair.hub.url, node_id="central", name="nightly") as hub,
        connect(pair.leaf.url, node_id="edge", name="builder") as leaf,
    ):
        await ensure_node_streams(leaf, "edge")
        await ensure_hub(leaf)
        writer = StreamWriter(leaf, stream)
        await writer.start(after=0)
        starts: list[int | None] = []

        async def last() -> int:
            return int((await hub.api.stream_info(HUB_DATA))["state"]["last_seq"])

        async def put_for_long() -> int:
            """Until the source was put in again three times meanwhile; how many."""
            count = 0
            while count < 6000 or len(starts) < 3:
                await put(writer, range(count, count + 500))
                count += 500
                behind = count - 3000
                await eventually(partial(_grown, last, behind), what="the hub not far behind", within=60)
            return count

        try:
            putting = asyncio.create_task(put_for_long())
            while not putting.done():
                before = await last()
                starts.append(await put_in_again(hub, HUB_DATA, stream, "edge"))

                async def going(before: int = before) -> bool:
                    return putting.done() or await _grown(last, before)

                await eventually(going, what="the source giving again", within=60)
            count = await putting
            await eventually(lambda: _grown(last, count - 1), what="the hub complete", within=60)
            assert await at_hub(hub) == list(range(count))
            # Everything of the node is purged: only what the server says of the source tells where it was.
            await purge_subject(hub, HUB_DATA, EDGE)
            assert await put_in_again(hub, HUB_DATA, stream, "edge") == count + 1
            await put(writer, range(count, count + 10))
            await eventually(lambda: _is(hub, list(range(count, count + 10))), what="only the new")
            assert not (await hub.api.stream_info(HUB_DATA))["config"].get("subjects")
            assert await put_in_again(hub, HUB_DATA, "psyclone-data-none", "none") is None
        finally:
            await writer.close()


async def _grown(last: Callable[[], Awaitable[int]], before: int) -> bool:
    return await last() > before


async def _is(hub: Bus, wanted: list[int]) -> bool:
    return await at_hub(hub) == wanted
