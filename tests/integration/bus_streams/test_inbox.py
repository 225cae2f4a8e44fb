"""The inbox on real servers: each message until it is acknowledged, in order, also from the other side of a
leaf.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bakemesh.bus import Bus, Sealed
from bakemesh.bus.inbox import Inbox, Item
from bakemesh.bus.streams import ensure_hub, ensure_node_streams
from bakemesh.protocol import subjects
from support.nats import MESH, connect, hub_and_leaf, server
from support.waiting import eventually


async def send(bus: Bus, node_id: str, text: str, party: str = "nightly") -> None:
    subject = subjects.build(MESH, node_id, party, f"{party}-{text}", subjects.RECIPE)
    await bus.publish_stored(subject, Sealed(text.encode(), f"{party}-{text}"))


async def take(inbox: Inbox, within: float = 20) -> Item:
    return await asyncio.wait_for(anext(inbox), within)


async def left(bus: Bus) -> int:
    return int((await bus.hub_api.stream_info(f"{MESH}-inbox"))["state"]["messages"])


async def test_messages_come_one_by_one_and_go_when_acknowledged(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        await ensure_hub(bus)
        for number in range(50):
            await send(bus, "alpha", str(number))
        await send(bus, "beta", "elsewhere")
        async with Inbox(bus, "alpha") as inbox:
            for number in range(50):
                item = await take(inbox)
                assert item.payload == str(number).encode()
                assert item.subject == subjects.build(
                    MESH, "alpha", "nightly", f"nightly-{number}", subjects.RECIPE
                )
                assert item.headers["Nats-Msg-Id"] == f"nightly-{number}"
                assert inbox.waiting == 0, "no second one while this one is out"
                assert await item.ack()
        assert await left(bus) == 1, "only the other node's is left"


async def test_what_arrives_while_waiting_comes_at_once(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        await ensure_hub(bus)
        async with Inbox(bus, "alpha") as inbox:
            for number in range(20):
                taking = asyncio.create_task(take(inbox))
                await asyncio.sleep(0)
                await send(bus, "alpha", str(number))
                assert await (await taking).ack()
        assert await left(bus) == 0


async def test_an_unacknowledged_message_comes_again_to_the_next_builder_at_once(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        await ensure_hub(bus)
        await send(bus, "alpha", "a")
        await send(bus, "alpha", "b")
        async with Inbox(bus, "alpha", ack_wait_s=600) as inbox:
            assert (await take(inbox)).payload == b"a"
        async with Inbox(bus, "alpha", ack_wait_s=600) as inbox:
            item = await take(inbox)
            assert (item.payload, item.times) == (b"a", 2)
            assert await item.ack()
            assert (await take(inbox)).payload == b"b"


async def test_given_back_it_comes_again_later_and_before_the_others(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        await ensure_hub(bus)
        await send(bus, "alpha", "a")
        await send(bus, "alpha", "b")
        async with Inbox(bus, "alpha") as inbox:
            item = await take(inbox)
            began = asyncio.get_running_loop().time()
            await item.nak(0.5)
            again = await take(inbox)
            assert again.payload == b"a"
            assert asyncio.get_running_loop().time() - began >= 0.4
            assert await again.ack()
            assert (await take(inbox)).payload == b"b"


async def test_while_it_is_worked_on_it_does_not_come_again(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        await ensure_hub(bus)
        await send(bus, "alpha", "a")
        async with Inbox(bus, "alpha", ack_wait_s=1) as inbox:
            item = await take(inbox)
            waiting = asyncio.create_task(anext(inbox))
            done, _ = await asyncio.wait({waiting}, timeout=3)
            assert not done, "it came a second time"
            assert await item.ack()
            waiting.cancel()
        assert await left(bus) == 0


async def test_a_server_killed_in_between_loses_nothing(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, node_id="alpha") as bus:
        await ensure_hub(bus)
        for number in range(30):
            await send(bus, "alpha", str(number))
        seen: list[int] = []
        async with Inbox(bus, "alpha") as inbox:
            while not seen or seen[-1] != 29:
                item = await take(inbox)
                if len(seen) in (5, 15):
                    await nats.kill()
                    await nats.start()
                seen.append(int(item.payload))
                await item.ack()
        assert sorted(set(seen)) == list(range(30))
        assert seen == sorted(seen), "a repeat comes at once, not later"
        await eventually(lambda: _empty(bus), what="an empty inbox")


async def _empty(bus: Bus) -> bool:
    return await left(bus) == 0


async def test_a_leaf_hears_both_sides_and_its_own_while_cut_off(tmp_path: Path) -> None:
    async with (
        hub_and_leaf(tmp_path, node_id="edge") as pair,
        connect(pair.hub.url, node_id="central", name="nightly") as hub,
        connect(pair.leaf.url, node_id="edge", name="builder") as leaf,
    ):
        await ensure_node_streams(leaf, "edge")
        await ensure_hub(leaf)
        async with Inbox(leaf, "edge") as inbox:
            await send(hub, "edge", "from-the-hub")
            texts = {(await _acked(inbox)).decode() for _ in range(2)}  # one from each store
            assert texts == {"from-the-hub"}
            await pair.cut()
            await send(leaf, "edge", "own-side")
            assert await _acked(inbox) == b"own-side"
            await send(hub, "edge", "while-cut")
            await pair.heal()
            assert await _acked(inbox) == b"while-cut"
            await eventually(lambda: _empty(hub), what="an empty hub inbox")


async def _acked(inbox: Inbox) -> bytes:
    item = await take(inbox)
    assert await item.ack()
    return item.payload
