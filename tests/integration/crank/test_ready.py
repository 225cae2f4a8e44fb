"""Psyclone.Ready: live, by the notes of those that were ready before, once each, never of a former boot."""

from __future__ import annotations

from pathlib import Path

from bakemesh.bus import Bucket
from bakemesh.bus.sealing import Sealed, seal
from bakemesh.crank.mailbox import Mailbox
from bakemesh.crank.ready import ReadyNotes
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.builder.spec.component import Trigger
from bakemesh.protocol.startup import Ready
from support.cranks import Desk, crankhost, desk, spec
from support.nats import MESH, TcpLink, connect, hub_and_leaf, server
from support.statuses import system_status
from support.waiting import eventually

SOURCE = """
async def crank(api):
    async for message in api.messages():
        boot = message.entries["boot"]
        await api.post("Say", {"node": message.node_id, "boot": boot, "by": message.sender})
"""
WOKEN = spec("woken", SOURCE, triggers={"Ready": "Psyclone.Ready"})


def ready(node_id: str, boot: str) -> Sealed:
    message = Ready(node=node_id, node_id=node_id, boot=boot, psyspec="p", digest="d", components=[])
    return seal(message, f"startup-{node_id}@{node_id}")


def status(node_id: str, boot: str) -> bytes:
    message = system_status(node_id, boot=boot)
    return seal(message, f"builder@{node_id}").payload


async def nodes(builder: Desk) -> Bucket:
    bucket = Bucket(builder.bus, storage.nodes_bucket(MESH))
    await bucket.ensure()
    return bucket


async def announce(builder: Desk, node_id: str, sealed: Sealed) -> None:
    subject = subjects.build(MESH, node_id, f"startup-{node_id}", subjects.NO_KEY, subjects.READY)
    await builder.bus.link.send(subject, sealed.payload)


async def test_a_component_that_comes_later_is_woken_by_the_notes_once_each(tmp_path: Path):
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        bucket = await nodes(builder)
        first = ready("alpha", "boot-1")
        await bucket.put(storage.ready_key("alpha"), first.payload)
        await bucket.put("alpha", status("alpha", "boot-1"))
        await bucket.put(storage.ready_key("beta"), ready("beta", "boot-old").payload)
        await bucket.put("beta", status("beta", "boot-new"))  # its new life is not ready yet
        await bucket.put(storage.ready_key("gamma"), b"junk")
        async with crankhost(tmp_path, nats.url, WOKEN) as host:
            assert await builder.said(1) == [{"node": "alpha", "boot": "boot-1", "by": "startup-alpha"}]
            await announce(builder, "alpha", first)  # a resend, with the same id
            await announce(builder, "beta", ready("beta", "boot-new"))
            await announce(builder, "alpha", ready("alpha", "boot-2"))
            heard = await builder.said(3)
            assert [(each["node"], each["boot"]) for each in heard[1:]] == [
                ("beta", "boot-new"),
                ("alpha", "boot-2"),
            ]
            await host.kill9()
            await host.start()
            assert (await builder.said(4))[3]["boot"] == "boot-1"  # a new life is woken again
            assert await host.stop() == 0


async def test_a_ready_that_was_sent_in_an_outage_is_not_missed(tmp_path: Path):
    async with server(tmp_path) as nats, desk(nats.url) as builder:
        bucket = await nodes(builder)
        link = TcpLink(("127.0.0.1", int(nats.url.rpartition(":")[2])))
        await link.start()
        async with crankhost(tmp_path, link.url, WOKEN) as host:
            await builder.ready(host)
            await link.cut()
            await eventually(lambda: "link down" in host.out, what="the end of its link")
            note = ready("alpha", "boot-1")
            await bucket.put(storage.ready_key("alpha"), note.payload)
            await announce(builder, "alpha", note)
            await link.heal()
            assert (await builder.said(1))[0]["boot"] == "boot-1"
            assert await host.stop() == 0
        await link.close()


async def test_a_pattern_that_takes_ready_is_woken_by_notes_too_and_a_ready_is_never_dropped(tmp_path: Path):
    source = """
import asyncio, pathlib
async def crank(api):
    await api.post("Say", {"begun": 1})
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    async for message in api.messages():
        if message.type == "Psyclone.Ready":
            await api.post("Say", {"trigger": message.trigger})
"""
    of = spec("woken", source, triggers={"Two": "Psyclone.*", "Tick": "Robot.Tick", "One": "Psyclone.Ready"})
    async with (
        server(tmp_path) as nats,
        desk(nats.url) as builder,
        crankhost(tmp_path, nats.url, of) as host,
    ):
        await builder.said(1)
        await announce(builder, "alpha", ready("alpha", "b"))
        for n in range(4200):
            await builder.post("Robot.Tick", {"n": n})
        await eventually(lambda: builder.shown("woken").get("dropped") == "104", what="the overflow")
        (host.folder / "data" / "go").touch()
        heard = await builder.said(3)
        assert [each["trigger"] for each in heard[1:]] == ["Two", "One"]
        assert await host.stop() == 0


async def test_on_a_leaf_whose_link_was_away_the_notes_are_looked_at_now_and_then(tmp_path: Path):
    trigger = Trigger(name="Up", type="Psyclone.Ready")
    async with (
        hub_and_leaf(tmp_path) as pair,
        connect(pair.leaf.url, node_id="edge") as edge,
        desk(pair.hub.url) as builder,
    ):
        bucket = await nodes(builder)
        mailbox = Mailbox()
        notes = ReadyNotes(edge, (trigger,), mailbox, look_s=0.05)
        await notes.start()
        await pair.link.cut()
        assert await mailbox.take(timeout=0.2) is None
        await bucket.put(storage.ready_key("alpha"), ready("alpha", "b").payload)
        await pair.link.heal()  # nobody tells a client of the leaf
        message = await mailbox.take(timeout=20)
        assert message is not None
        assert (message.trigger, message.node_id) == ("Up", "alpha")
        assert await mailbox.take(timeout=0.2) is None
        await notes.close()
