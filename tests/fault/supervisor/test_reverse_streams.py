"""The two reverse streams when things go wrong: nothing is lost silently, nothing is counted twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bakemesh.bus import Bus
from bakemesh.bus.events import SlowConsumer
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.protocol.errors import IntegrityError
from bakemesh.supervisor import DataPruned, StatusPruned, Supervisor
from support.nats import connect, hub_and_leaf
from support.scripted_builder import ScriptedBake, scripted_builder
from support.supervision import RECIPE, mesh, quick
from support.waiting import eventually


async def output(bake) -> bytes:
    return b"".join([chunk.data async for chunk in bake.data()])


async def serials(bake) -> list[int]:
    return [status.serial async for status in bake.status()]


async def test_a_server_killed_and_restarted_in_mid_stream_loses_and_repeats_nothing(tmp_path: Path) -> None:
    pieces = [index.to_bytes(4, "big") for index in range(3000)]
    half, go = asyncio.Event(), asyncio.Event()

    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        await bake.chunks(pieces[:1500])
        half.set()
        await go.wait()
        for index in range(20):
            await bake.status()
            await bake.chunk(pieces[1500 + index])
        await bake.chunks(pieces[1520:])
        await bake.succeed()

    async with mesh(tmp_path, script) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        reading = [asyncio.ensure_future(one(bake)) for one in (output, serials, output, serials)]
        ending = asyncio.ensure_future(bake.outcome())
        await half.wait()
        await here.nats.kill()
        await eventually(lambda: not here.supervisor.bus.connected)
        go.set()
        await here.nats.start()
        whole = b"".join(pieces)
        assert [await one for one in reading] == [whole, list(range(1, 23)), whole, list(range(1, 23))]
        assert isinstance(await ending, BakeSuccess)


async def test_what_is_said_while_the_supervisor_is_away_is_made_up_for(tmp_path: Path) -> None:
    """The terminal is stored while this side's link is down: no live message of it ever comes."""
    from support.nats import TcpLink

    go, done = asyncio.Event(), asyncio.Event()

    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        await go.wait()
        await bake.chunk(b"unseen")
        await bake.status()
        await bake.succeed()
        done.set()

    async with mesh(tmp_path, script) as here:
        link = TcpLink(("127.0.0.1", int(here.nats.url.rpartition(":")[2])))
        await link.start()
        try:
            async with Supervisor.connect(link.url, "nightly") as supervisor:
                bake = await supervisor.bake(RECIPE, node="beta")
                statuses = asyncio.ensure_future(serials(bake))
                data = asyncio.ensure_future(output(bake))
                await eventually(lambda: bake.latest)
                await link.cut()
                await eventually(lambda: not supervisor.bus.connected)
                go.set()
                await done.wait()
                await link.heal()
                assert await statuses == [1, 2, 3]
                assert await data == b"unseen"
        finally:
            await link.close()


async def test_repeated_messages_are_counted_once(tmp_path: Path) -> None:
    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        for _ in range(3):
            await bake.status()
            bake.serial -= 1
            await bake.status()
            await bake.chunk(b"once ")
            bake.seq -= 1
            await bake.chunk(b"once ")
        await bake.succeed()

    async with mesh(tmp_path, script) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        assert await output(bake) == b"once once once "
        assert await serials(bake) == [1, 2, 3, 4, 5]


async def test_a_hole_in_the_data_is_an_integrity_error_for_every_reader(tmp_path: Path) -> None:
    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        await bake.chunk(b"1")
        bake.seq += 1
        await bake.chunk(b"3")
        await bake.succeed()

    async with mesh(tmp_path, script) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        for _ in range(2):
            data = bake.data()
            assert (await anext(data)).data == b"1"
            with pytest.raises(IntegrityError, match="seq 3 after 1"):
                await anext(data)
            with pytest.raises(IntegrityError):
                await anext(data)
        assert await serials(bake) == [1, 2], "Status does not suffer from it"


async def test_purged_data_is_said_and_never_a_silent_gap(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        assert await output(bake) == b"one two"
        stream = storage.data_stream("psyclone", "b1")
        wanted = subjects.pattern(
            "psyclone", "Psyclone.Builder.Bake.Data", party="nightly", key=bake.recipe_id
        )
        await here.builder_bus.api.purge_stream(stream, subject=wanted, keep=1)
        with pytest.raises(DataPruned, match="0 of 2"):
            await output(bake)
        await here.builder_bus.api.purge_stream(stream, subject=wanted)
        async with Supervisor.connect(here.nats.url, "nightly") as later:
            attached = await later.attach(bake.recipe_id)
            with pytest.raises(DataPruned, match="0 of 2"):
                await output(attached)


async def test_pruned_status_is_said_to_readers_and_the_outcome_still_known(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        await bake.outcome()
        stream = storage.status_stream("psyclone", "b1")
        await here.builder_bus.api.purge_stream(stream, keep=1)
        async with Supervisor.connect(here.nats.url, "nightly") as later:
            attached = await later.attach(bake.recipe_id)
            assert isinstance(await attached.outcome(), BakeSuccess)
            with pytest.raises(StatusPruned, match="serial 1 of nightly-index-1"):
                await serials(attached)


async def test_strangers_messages_on_the_subjects_are_skipped(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        bus = here.builder_bus
        bake = await here.supervisor.bake(RECIPE, node="beta")
        await bake.outcome()
        data = subjects.build("psyclone", "b1", "nightly", "nightly-index-2", "Psyclone.Builder.Bake.Data")
        status = subjects.build(
            "psyclone", "b1", "nightly", "nightly-index-2", "Psyclone.Builder.Bake.Status"
        )
        theirs = here.builder.bakes[bake.identity.key]
        foreign = [
            (data, b"rubbish"),
            (status, b""),
            (status, bus.seal(theirs._chunk(b"canary", {})).payload),
        ]
        # Another bake's chunk on this bake's subject, and the same as the server's own copy would carry it.
        own = bus.seal(theirs._chunk(b"canary", {}))
        for subject, payload in [*foreign, (data, own.payload)]:
            await bus.link.ask(subject, payload, 5)
            await bus.link.ask(subject, payload, 5, headers={"Nats-Stream": "x", "Nats-Subject": "y"})
        second = await here.supervisor.bake(RECIPE, node="beta")
        assert second.recipe_id == "nightly-index-2"
        assert await output(second) == b"one two"
        assert await serials(second) == [1, 2, 3]


async def test_a_slow_consumer_reads_the_stream_again(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        await go.wait()
        for _ in range(50):
            await bake.status()
        await bake.succeed()

    async with mesh(tmp_path, script) as here:
        supervisor = here.supervisor
        bake = await supervisor.bake(RECIPE, node="beta")
        await eventually(lambda: bake.latest)
        for subscription in supervisor._live._own:  # what comes now is dropped, as behind a full queue
            await subscription.stop()
        go.set()
        await here.builder.tasks[0]
        supervisor.bus.link._tell(SlowConsumer("psyclone.*.nightly.*.Psyclone.Builder.Bake.Status", 1))
        assert await serials(bake) == list(range(1, 53))


async def sourced(hub: Bus) -> bool:
    info = await hub.api.stream_info(storage.hub_data_stream(hub.mesh))
    return bool(info["state"]["messages"] == 200)


async def test_a_leaf_that_is_cut_off_in_mid_bake_is_followed_to_the_end_after_healing(
    tmp_path: Path,
) -> None:
    pieces = [index.to_bytes(4, "big") * 100 for index in range(500)]
    half, go, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        await bake.chunks(pieces[:200])
        half.set()
        await go.wait()
        await bake.chunks(pieces[200:])
        await bake.status()
        await bake.succeed()
        done.set()

    async with (
        hub_and_leaf(tmp_path) as pair,
        connect(pair.leaf.url, identity="builder-edge", node_id="edge") as bus,
        scripted_builder(bus, "edge", "edge", script),
        Supervisor.connect(pair.hub.url, "nightly") as supervisor,
        Supervisor.connect(pair.leaf.url, "nightly") as beside,
    ):
        bake = await supervisor.bake(RECIPE, node="edge")
        reading = [asyncio.ensure_future(one(bake)) for one in (output, serials)]
        await half.wait()
        # A hub that had no link to a source yet looks for it again only after half a minute.
        await eventually(lambda: sourced(supervisor.bus), what="the hub's copy of what was stored")
        await pair.cut()
        near = await beside.attach(bake.recipe_id)  # the node's own side does not need the hub
        near_reading = [asyncio.ensure_future(one(near)) for one in (output, serials)]
        go.set()
        await done.wait()
        assert [await one for one in near_reading] == [b"".join(pieces), [1, 2, 3]]
        assert not any(one.done() for one in reading)
        await pair.heal()
        assert [await one for one in reading] == [b"".join(pieces), [1, 2, 3]]
        assert isinstance(await bake.outcome(), BakeSuccess)


async def test_a_node_cut_off_from_its_hub_is_still_baked_on_from_its_own_side(tmp_path: Path) -> None:
    async with (
        hub_and_leaf(tmp_path) as pair,
        connect(pair.leaf.url, identity="builder-edge", node_id="edge") as bus,
        scripted_builder(bus, "edge", "edge", quick),
        Supervisor.connect(pair.leaf.url, "nightly", state=tmp_path / "state") as supervisor,
    ):
        first = await supervisor.bake(RECIPE, node="edge")
        assert isinstance(await first.outcome(), BakeSuccess)
        await pair.cut()
        for node in ("edge", "any"):
            bake = await supervisor.bake(RECIPE, node=node)
            assert bake.node_id == "edge"
            assert await output(bake) == b"one two"
            found = await supervisor.attach(bake.recipe_id)
            assert await serials(found) == [1, 2, 3]
        async with Supervisor.connect(pair.leaf.url, "nightly", state=tmp_path / "state") as restarted:
            again = await restarted.bake(RECIPE, node="edge")
            assert isinstance(await again.outcome(), BakeSuccess)
            assert again.recipe_id not in {first.recipe_id, bake.recipe_id}
