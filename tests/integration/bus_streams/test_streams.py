"""Making the streams on real servers: twice, at once, with sizes; and the hub's source lists."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bakemesh.bus import Bus
from bakemesh.bus.hub import Sources
from bakemesh.bus.kv import Bucket
from bakemesh.bus.purge import purge_subject, stored_terminal
from bakemesh.bus.sizes import MIB, STATUS_BYTES, Sizes
from bakemesh.bus.streams import StoreTooSmall, ensure_hub, ensure_node_streams
from bakemesh.bus.writer import Outgoing, StreamWriter
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.builder.messages import SystemStatus
from support.nats import MESH, connect, hub_and_leaf, server
from support.waiting import eventually


async def config(bus: Bus, stream: str, *, hub: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = (await (bus.hub_api if hub else bus.api).stream_info(stream))["config"]
    return found


async def source_names(bus: Bus, stream: str) -> list[str]:
    return sorted(each["name"] for each in (await config(bus, stream, hub=True)).get("sources") or [])


async def announce(bus: Bus, node_id: str, *, leaf: bool = False) -> None:
    """What a Builder does every few seconds: its SystemStatus into the nodes bucket."""
    status = SystemStatus(
        node=node_id,
        node_id=node_id,
        boot="b",
        bakes=0,
        queued=0,
        load=0.0,
        draining=False,
        configcomplete=True,
        version="0",
        protocols=["builder/1"],
        stepkinds=["cli"],
        components=[],
        leaf=leaf,
    )
    await Bucket(bus, storage.nodes_bucket(MESH)).put(node_id, bus.seal(status).payload)


async def test_a_nodes_streams_have_their_rules(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        await ensure_node_streams(bus, "alpha", Sizes(free=4 * 2**30))
        status, data = await config(bus, f"{MESH}-status-alpha"), await config(bus, f"{MESH}-data-alpha")
        assert (status["max_bytes"], data["max_bytes"]) == (STATUS_BYTES, 2**30)
        assert data["subjects"] == [f"{MESH}.alpha.*.*.Psyclone.Builder.Bake.Data"]
        assert f"{MESH}.alpha.*.*.Psyclone.Builder.Bake.Cancelled" in status["subjects"]
        assert len(status["subjects"]) == 6
        for each in (status, data):
            assert (each["discard"], each["max_age"], each["allow_direct"]) == ("new", 0, False)


async def test_an_existing_stream_keeps_its_size_unless_it_is_set(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        data = f"{MESH}-data-alpha"
        await ensure_node_streams(bus, "alpha", Sizes(data_bytes=100 * MIB))
        await ensure_node_streams(bus, "alpha", Sizes(free=2**40, nodes_expected=1))
        assert (await config(bus, data))["max_bytes"] == 100 * MIB
        await ensure_node_streams(bus, "alpha", Sizes(data_bytes=50 * MIB))
        assert (await config(bus, data))["max_bytes"] == 50 * MIB


async def test_other_rules_are_brought_to_what_they_should_be(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        name = f"{MESH}-data-alpha"
        await bus.api.create_stream(
            {"name": name, "subjects": ["old"], "max_bytes": 70 * MIB, "max_age": 10**12, "discard": "old"}
        )
        await ensure_node_streams(bus, "alpha")
        found = await config(bus, name)
        assert (found["max_bytes"], found["max_age"], found["discard"]) == (70 * MIB, 0, "new")
        assert found["subjects"] == [f"{MESH}.alpha.*.*.Psyclone.Builder.Bake.Data"]


async def test_a_store_that_is_too_small_is_said_with_both_numbers(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        with pytest.raises(
            StoreTooSmall, match=r"psyclone-data-alpha asks for 8.0 EiB|8388608.0 TiB"
        ) as raised:
            await ensure_node_streams(bus, "alpha", Sizes(data_bytes=2**63 - 1, free=5 * 2**30))
        assert raised.value.wanted == 2**63 - 1
        assert "5.0 GiB free" in str(raised.value)


async def test_several_builders_make_everything_at_once(tmp_path: Path) -> None:
    nodes = [f"node{number}" for number in range(6)]
    async with server(tmp_path) as nats:

        async def builder(node_id: str) -> None:
            async with connect(nats.url, node_id=node_id, name="builder") as bus:
                for _ in range(2):
                    await ensure_node_streams(bus, node_id)
                    await ensure_hub(bus, Sizes(nodes_expected=6))

        await asyncio.gather(*(builder(node_id) for node_id in nodes))
        async with connect(nats.url) as bus:
            names = set((await bus.api.request("STREAM.NAMES"))["streams"])
            own = {f"{MESH}-{kind}-{node_id}" for kind in ("status", "data") for node_id in nodes}
            hub = {
                f"{MESH}-inbox",
                f"{MESH}-status",
                f"KV_{MESH}-nodes",
                f"KV_{MESH}-ids",
                f"KV_{MESH}-cohorts",
            }
            assert names == own | hub
            status = await config(bus, f"{MESH}-status")
            assert len(status["sources"]) == 1, "whoever was first"
            assert not status.get("subjects")
            assert (await config(bus, f"{MESH}-inbox"))["retention"] == "workqueue"


async def test_the_source_lists_follow_the_nodes_with_one_writer(tmp_path: Path) -> None:
    nodes = [f"node{number}" for number in range(8)]
    async with server(tmp_path) as nats, connect(nats.url, node_id="node0") as bus:
        await ensure_hub(bus)
        async with connect(nats.url, node_id="node1") as other:
            keepers = [Sources(one, every_s=0.05) for one in (bus, other)]
            for keeper in keepers:
                await keeper.start()
            try:
                await asyncio.gather(*(announce(bus, node_id) for node_id in nodes))

                async def names() -> bool:
                    return await source_names(bus, f"{MESH}-status") == [f"{MESH}-status-{n}" for n in nodes]

                await eventually(names, what="all nodes among the sources")
                await Bucket(bus, storage.nodes_bucket(MESH)).delete("node7")
                nodes.remove("node7")
                await eventually(names, what="the forgotten node out of the sources")
                await keepers[0].close()
                await announce(bus, "node8")
                nodes.append("node8")
                await eventually(names, what="the other keeper taking over", within=30)
            finally:
                for keeper in keepers:
                    await keeper.close()


async def test_a_source_that_is_added_later_brings_what_was_stored_before_and_each_message_once(
    tmp_path: Path,
) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        await ensure_hub(bus, node_id="alpha")
        for node_id in ("alpha", "beta"):
            await ensure_node_streams(bus, node_id)
            await announce(bus, node_id)
            await status_of(bus, node_id, range(100))
        keeper = Sources(bus, every_s=0.05)
        await keeper.start()
        try:
            for turn in (2, 4, 6):
                await eventually(
                    lambda turn=turn: _holds(bus, f"{MESH}-status", 100 * turn),
                    what="everything",  # type: ignore[misc]
                )
                await announce(bus, f"node{turn}")  # the lists change, the two sources stay
                for node_id in ("alpha", "beta"):
                    await status_of(bus, node_id, range(50 * turn, 50 * turn + 100))
            await eventually(lambda: _holds(bus, f"{MESH}-status", 800), what="everything")
        finally:
            await keeper.close()


async def status_of(bus: Bus, node_id: str, numbers: range, *, terminal: bool = False) -> None:
    writer = StreamWriter(bus, storage.status_stream(MESH, node_id))
    await writer.start(after=None)
    kind = "Success" if terminal else "Status"
    subject = subjects.build(MESH, node_id, "nightly", "nightly-demo-1", f"{subjects.BAKE}.{kind}")
    futures = [await writer.put(Outgoing(subject, f"{node_id}-{kind}-{n}", b"%d" % n)) for n in numbers]
    await asyncio.gather(*futures)
    await writer.close()


async def _holds(bus: Bus, stream: str, count: int) -> bool:
    state = (await bus.hub_api.stream_info(stream))["state"]
    assert state["messages"] <= count, "something is there twice"
    return bool(state["messages"] == count)


async def test_a_bake_is_purged_and_its_terminal_found(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        await ensure_node_streams(bus, "alpha")
        await ensure_hub(bus)
        bake = {"node_id": "alpha", "party": "nightly", "key": "nightly-demo-1"}
        await status_of(bus, "alpha", range(10))
        assert await stored_terminal(bus, **bake) is None
        await status_of(bus, "alpha", range(1), terminal=True)
        found = await eventually(lambda: stored_terminal(bus, **bake), what="the terminal on the hub")
        assert found.subject.endswith("Bake.Success")
        stream = storage.status_stream(MESH, "alpha")
        everything = subjects.pattern(MESH, f"{subjects.BAKE}.*", node_id="alpha", key="nightly-demo-1")
        assert await purge_subject(bus, stream, everything) == 11
        assert await stored_terminal(bus, **bake) == found, "a purge does not reach the hub's copy"
        assert await purge_subject(bus, storage.hub_status_stream(MESH), everything, api=bus.hub_api) == 11
        assert await stored_terminal(bus, **bake) is None


async def test_a_leaf_makes_its_own_without_the_hub_and_the_hubs_when_it_is_there(tmp_path: Path) -> None:
    from bakemesh.bus.errors import StoreUnavailable

    async with hub_and_leaf(tmp_path, node_id="edge") as pair, connect(pair.leaf.url, node_id="edge") as leaf:
        await pair.cut()
        await ensure_node_streams(leaf, "edge")
        assert (await config(leaf, f"{MESH}-inbox-edge"))["subjects"][0].startswith(f"{MESH}.edge.")
        with pytest.raises(StoreUnavailable):
            await ensure_hub(leaf)
        await pair.heal()
        await ensure_hub(leaf)
        for kind in ("status", "data"):
            (source,) = (await config(leaf, f"{MESH}-{kind}", hub=True))["sources"]
            assert source["name"] == f"{MESH}-{kind}-edge"
            assert source["external"]["api"] == "$JS.edge.API"
