"""Buckets, claims and locks on the hub, from a hub's client and through a leaf, with the link cut in
between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bakemesh.bus import Bucket, Bus
from bakemesh.bus.claim import Claim, ClaimEvent, ClaimHeld, ClaimState, Lock, builder_claim
from bakemesh.bus.errors import NotFound, StoreTimeout, StoreUnavailable, WrongSequence
from bakemesh.protocol import storage
from support.nats import HubAndLeaf, connect, hub_and_leaf, server
from support.waiting import eventually

NODES = "psyclone-nodes"
ONE = b"1" * 300


@dataclass
class Pair:
    """The same bucket from the hub (`hub`) and through the leaf (`leaf`)."""

    servers: HubAndLeaf
    hub_bus: Bus
    leaf_bus: Bus
    hub: Bucket
    leaf: Bucket


@asynccontextmanager
async def pair(folder: Path, *, ensure: bool = True) -> AsyncIterator[Pair]:
    async with (
        hub_and_leaf(folder) as servers,
        connect(servers.hub.url) as hub,
        connect(servers.leaf.url) as leaf,
    ):
        made = Pair(servers, hub, leaf, Bucket(hub, NODES), Bucket(leaf, NODES, timeout=2))
        if ensure:
            await made.leaf.ensure()
        yield made


async def test_a_leaf_knows_itself(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        assert (two.leaf_bus.domain, two.leaf_bus.on_leaf) == ("edge", True)
        assert (two.hub_bus.domain, two.hub_bus.on_leaf) == ("hub", False)


async def test_a_bucket_that_does_not_exist_is_told(tmp_path: Path) -> None:
    async with pair(tmp_path, ensure=False) as two:
        for bucket in (two.hub, two.leaf):
            with pytest.raises(NotFound):
                await bucket.get("a")
            with pytest.raises(NotFound):
                await bucket.put("a", b"1")
            with pytest.raises(NotFound):
                await bucket.keys()


async def test_values_are_the_same_from_either_side(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        await two.hub.ensure()  # again: nothing
        for near, far in ((two.leaf, two.hub), (two.hub, two.leaf)):
            assert await near.get("a") is None
            first = await near.create("a", b"1")
            assert (await far.get("a")).value == b"1"
            with pytest.raises(WrongSequence) as wrong:
                await far.create("a", b"other")
            assert wrong.value.last == first
            second = await far.update("a", b"2", first)
            with pytest.raises(WrongSequence) as wrong:
                await near.update("a", b"3", first)
            assert wrong.value.last == second
            await near.put("b.with.dots", b"")
            assert await far.keys() == ["a", "b.with.dots"]
            assert (await far.entries())["b.with.dots"].value == b""
            with pytest.raises(WrongSequence):
                await near.delete("a", revision=first)
            await near.delete("a", revision=second)
            await far.delete("b.with.dots")
            assert await far.get("a") is None
            assert await near.keys() == []


async def test_a_deleted_key_can_be_created_again_by_one_alone(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        await two.hub.create("a", b"1")
        await two.hub.delete("a")
        tries = await asyncio.gather(
            *(bucket.create("a", b"2") for bucket in (two.hub, two.leaf) * 5), return_exceptions=True
        )
        assert sum(isinstance(one, int) for one in tries) == 1
        assert sum(isinstance(one, WrongSequence) for one in tries) == 9


async def test_a_key_vanishes_after_its_time_also_when_written_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        revision = await two.leaf.create("a", b"1", ttl_s=1)
        revision = await two.leaf.update("a", b"2", revision, ttl_s=1)
        assert await two.hub.get("a") is not None
        await eventually(lambda: _removed(two.hub_bus, "a"), what="the key's end")
        assert await two.hub.get("a") is None
        with pytest.raises(WrongSequence) as wrong:
            await two.leaf.update("a", b"3", revision, ttl_s=1)
        assert wrong.value.last == 0
        await two.leaf.create("a", b"4")


async def _removed(bus: Bus, key: str) -> bool:
    """Whether the server itself has the key no more."""
    stream = storage.bucket_stream(NODES)
    info = await bus.hub_api.stream_info(stream, subjects_filter=storage.bucket_subject(NODES, key))
    return not info["state"].get("subjects")


async def test_a_key_whose_time_was_over_before_the_server_was_killed_stays_away(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        async with connect(nats.url) as bus:
            bucket = Bucket(bus, NODES)
            await bucket.ensure()
            ends, kept = await bucket.create("a", ONE, ttl_s=2), await bucket.create("b", ONE, ttl_s=60)
            for _ in range(3):
                ends = await bucket.update("a", ONE, ends, ttl_s=2)
                kept = await bucket.update("b", ONE, kept, ttl_s=60)
            await eventually(lambda: _removed(bus, "a"), what="the key's end")
            for _ in range(100):
                kept = await bucket.update("b", ONE, kept, ttl_s=60)
        await nats.kill()
        await nats.start()
        async with connect(nats.url) as bus:
            bucket = Bucket(bus, NODES)
            assert not await _removed(bus, "a"), "the server has it again: this is what is tested"
            assert await bucket.get("a") is None
            assert {key: each.revision for key, each in (await bucket.entries()).items()} == {"b": kept}
            heir = Claim(bucket, "a", "heir")
            assert await heir.try_take()
            await heir.release()


async def test_a_hub_out_of_reach_is_told_and_comes_back(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        await two.leaf.put("a", b"1")
        await two.servers.cut()
        with pytest.raises((StoreUnavailable, StoreTimeout)):
            await two.leaf.put("a", b"2")
        with pytest.raises((StoreUnavailable, StoreTimeout)):
            await two.leaf.get("a")
        await two.servers.heal()
        await two.leaf.put("a", b"3")
        assert (await two.hub.get("a")).value == b"3"


async def test_a_claim_keeps_others_out_and_its_own_folder_in(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, name="builder", node_id="alpha") as bus:
        await Bucket(bus, NODES).ensure()
        first = builder_claim(bus, "alpha", "folder-1")
        await first.take()
        assert first.held
        with pytest.raises(ClaimHeld, match=r"alpha\.claim is held by builder@alpha, state folder folder-1"):
            await builder_claim(bus, "alpha", "folder-2").take()
        # The Builder was killed and is back: no waiting for the claim's end.
        again = builder_claim(bus, "alpha", "folder-1")
        await again.take()
        await again.release()
        await first.release()
        assert not first.held
        other = builder_claim(bus, "alpha", "folder-2")
        assert await other.try_take()
        await other.release()


async def test_a_claim_of_one_who_is_gone_ends_by_itself(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        bucket = Bucket(bus, NODES)
        await bucket.ensure()
        async with connect(nats.url) as dies:
            claim = Claim(Bucket(dies, NODES), "k", "dies", ttl_s=1)
            await claim.take()
            claim._renewing.cancel()  # as if its process had been killed
        heir = Claim(bucket, "k", "heir", ttl_s=1)
        await heir.take(wait_s=30)
        assert heir.held
        await heir.release()


async def test_a_claim_is_renewed_beyond_its_time(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        bucket = Bucket(bus, NODES)
        await bucket.ensure()
        claim = Claim(bucket, "k", "me", ttl_s=1)
        await claim.take()
        first = (await bucket.get("k")).revision

        async def renewed_often() -> bool:
            assert claim.held
            return (await bucket.get("k")).revision >= first + 6  # twice its time

        await eventually(renewed_often, what="six renewals")
        await claim.release()
        assert await bucket.get("k") is None


async def test_cut_off_a_claim_is_uncertain_then_lost_then_taken_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        claim = Claim(two.leaf, "edge.claim", "me", ttl_s=2)
        events: list[ClaimEvent] = []
        claim.on_change(events.append)
        await claim.take()
        await two.servers.cut()
        await eventually(lambda: len(events) == 2, what="the claim uncertain")
        await eventually(lambda: not claim.held, what="the claim's end by its own clock")
        rival = Claim(two.hub, "edge.claim", "rival", ttl_s=2)
        await rival.take(wait_s=30)
        await two.servers.heal()
        await eventually(lambda: len(events) == 3, what="the claim lost")
        await rival.release()
        await eventually(lambda: claim.held, what="the claim taken again")
        assert [event.state for event in events] == [
            ClaimState.HELD,
            ClaimState.UNCERTAIN,
            ClaimState.LOST,
            ClaimState.HELD,
        ]
        assert events[2].detail == "rival"
        await claim.release()


async def test_a_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await Bucket(bus, NODES).ensure()
        locks = [Lock(bus, "sources", f"process-{number}") for number in range(8)]
        for _ in range(5):
            taken = await asyncio.gather(*(lock.try_take() for lock in locks))
            assert sum(taken) == 1
            assert [lock.held for lock in locks] == taken
            await locks[taken.index(True)].release()


async def test_a_claim_survives_the_servers_restart(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await Bucket(bus, NODES).ensure()
        claim = Claim(Bucket(bus, NODES, timeout=1), "k", "me", ttl_s=3)
        events: list[ClaimEvent] = []
        claim.on_change(events.append)
        await claim.take()
        await nats.kill()
        await eventually(lambda: events[-1].state is ClaimState.UNCERTAIN, what="the claim uncertain")
        await nats.start()
        await eventually(lambda: events[-1].state is ClaimState.HELD, what="the claim held again")
        assert claim.held
        await claim.release()
