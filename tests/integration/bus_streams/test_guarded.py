"""Streams, writer, inbox and readers with the rights that the subject table gives, and no more."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from bakemesh.bus.errors import AccessDenied
from bakemesh.bus.hub import Sources
from bakemesh.bus.inbox import Inbox
from bakemesh.bus.purge import purge_subject, stored_terminal
from bakemesh.bus.reader import read
from bakemesh.bus.sealing import Sealed
from bakemesh.bus.streams import ensure_hub, ensure_node_streams
from bakemesh.bus.writer import Outgoing, StreamWriter
from bakemesh.protocol import storage, subjects
from support.nats import MESH, guarded
from support.waiting import eventually

BAKE = {"node_id": "alpha", "party": "nightly", "key": "nightly-demo-1"}


def subject(kind: str) -> str:
    return subjects.build(MESH, "alpha", "nightly", "nightly-demo-1", f"{subjects.BAKE}.{kind}")


async def test_a_builder_needs_no_more_than_its_rights(tmp_path: Path) -> None:
    async with guarded(tmp_path) as mesh, mesh.connect("builder-alpha") as builder:
        denied: list[object] = []
        builder.on_event(denied.append)
        await ensure_node_streams(builder, "alpha")
        await ensure_hub(builder)
        sources = Sources(builder, every_s=0.05)
        await sources.start()
        for kind, stream in (("Data", "data"), ("Success", "status")):
            name = f"{MESH}-{stream}-alpha"
            first, again = StreamWriter(builder, name), StreamWriter(builder, name)
            rows = [Outgoing(subject(kind), f"{kind}-{number}", b"x") for number in range(20)]
            await first.start(after=0)
            await asyncio.gather(*[await first.put(row) for row in rows[:10]])
            await first.close()
            await again.start(after=3)  # looks at what is stored
            stored = await asyncio.gather(*[await again.put(row) for row in rows[3:]])
            assert stored == list(range(4, 21))
            assert await again.discard(lambda out: True) == []
            await again.close()
        await eventually(lambda: stored_terminal(builder, **BAKE), what="the terminal on the hub")
        async with mesh.connect("nightly") as nightly, Inbox(builder, "alpha") as inbox:
            recipe = subjects.build(MESH, "alpha", "nightly", "nightly-demo-2", subjects.RECIPE)
            await nightly.publish_stored(recipe, Sealed(b"recipe", "recipe-2"))
            assert await (await anext(inbox)).ack()
            await nightly.publish_stored(recipe, Sealed(b"recipe", "recipe-3"))
            await (await anext(inbox)).nak()
        async with Inbox(builder, "alpha") as inbox:
            assert await (await anext(inbox)).ack()
        assert await purge_subject(builder, storage.data_stream(MESH, "alpha"), subject("Data")) == 20
        await sources.close()
        await builder.link.barrier()
        assert denied == []


async def test_readers_read_what_is_theirs(tmp_path: Path) -> None:
    async with guarded(tmp_path) as mesh, mesh.connect("builder-alpha") as builder:
        await ensure_node_streams(builder, "alpha")
        await ensure_hub(builder)
        for kind, stream in (("Data", "data"), ("Status", "status")):
            writer = StreamWriter(builder, f"{MESH}-{stream}-alpha")
            await writer.start(after=0)
            await asyncio.gather(
                *[await writer.put(Outgoing(subject(kind), f"{kind}-{n}", b"x")) for n in range(5)]
            )
            await writer.close()
        data = storage.data_stream(MESH, "alpha")
        mine = subjects.pattern(
            MESH, f"{subjects.BAKE}.Data", node_id="alpha", party="nightly", key=BAKE["key"]
        )
        async with (
            mesh.connect("nightly") as nightly,
            aclosing(read(nightly, data, mine, end="last")) as messages,
        ):
            assert len([one async for one in messages]) == 5
        async with mesh.connect("other") as other:
            with pytest.raises(AccessDenied):
                async with aclosing(read(other, data, mine, end="last")) as messages:
                    await anext(messages)
        async with mesh.connect("board") as board:
            everything = subjects.pattern(MESH, f"{subjects.BAKE}.*")
            status = storage.hub_status_stream(MESH)
            async with aclosing(read(board, status, everything)) as messages:
                assert [(await anext(messages)).payload for _ in range(5)] == [b"x"] * 5
            with pytest.raises(AccessDenied):
                async with aclosing(read(board, data, mine)) as messages:
                    await anext(messages)
