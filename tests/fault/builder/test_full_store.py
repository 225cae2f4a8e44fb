"""The node's streams full: who waits is told, old bakes make room, and what matters is heard."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bakemesh.bus import Bus
from bakemesh.bus.errors import NotFound, StoreFull
from bakemesh.bus.purge import purge_subject
from bakemesh.bus.sealing import Sealed
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.protocol.subjects import build
from bakemesh.supervisor import Bake
from support.mesh import mesh
from support.waiting import eventually


async def fill(bus: Bus) -> str:
    """Fills the node's Data stream to the brim with somebody else's messages; gives their subject."""
    ballast = build(bus.mesh, "alpha", "somebody", "somebody-else-1", "Psyclone.Builder.Bake.Data")
    size = 2**19
    for number in range(10_000):
        try:
            await bus.publish_stored(ballast, Sealed(bytes(size), f"ballast-{number}"))
        except StoreFull:
            if size == 1:
                return ballast
            size = max(1, size // 8)
    raise AssertionError("the stream cannot be filled")


async def test_every_bake_is_told_once_that_the_store_is_full(tmp_path: Path) -> None:
    """Those without a heartbeat too, and those that came when it was full already."""
    xml = '<recipe name="quiet" status-interval-ms="0"><cli command="echo something"/></recipe>'
    async with (
        mesh(tmp_path, "--store-max-bytes", "16MiB") as net,
        net.supervisor("boss") as boss,
        net.connect("builder-alpha") as bus,
    ):
        ballast = await fill(bus)
        bakes = []
        for _ in range(3):
            bakes.append(await boss.bake(xml, node="alpha"))
            async for status in bakes[-1].status():
                if "output store full" in status.summary:
                    break
        await purge_subject(bus, storage.data_stream(bus.mesh, "alpha"), ballast)
        for bake in bakes:
            assert isinstance(await bake.outcome(), BakeSuccess)
            told = [status.kind async for status in bake.status() if "store full" in status.summary]
            assert told == ["interim"]


async def shrink(bus: Bus, size: int) -> None:
    """A Status stream that fills in seconds instead of hours."""
    info = await bus.api.stream_info(storage.status_stream(bus.mesh, "alpha"))
    await bus.api.update_stream(info["config"] | {"max_bytes": size})


async def stored(bus: Bus, bake: Bake, kind: str) -> bool:
    """Whether the node's Status stream has such a message of the bake. Who listens hears it anyway."""
    subject = build(bus.mesh, "alpha", "boss", bake.recipe_id, f"Psyclone.Builder.Bake.{kind}")
    try:
        await bus.api.get_message(storage.status_stream(bus.mesh, "alpha"), last_of=subject)
    except NotFound:
        return False
    return True


async def test_old_status_makes_room_for_the_ends_of_bakes(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
        net.connect("builder-alpha") as bus,
    ):
        await shrink(bus, 256 * 2**10)
        xml = '<recipe name="short"><cli command="true"/></recipe>'
        bakes: list[Bake] = []
        for _ in range(3):  # together some 370 KiB, of which the ends are 100
            some = await asyncio.gather(*(boss.bake(xml, node="alpha") for _ in range(50)))
            await asyncio.gather(*(bake.outcome() for bake in some))
            bakes += some

        async def all_ends() -> bool:
            return all([await stored(bus, bake, "Success") for bake in bakes])

        await eventually(all_ends, within=40, what="every end in the stream")
        assert not await stored(bus, bakes[0], "Status"), "the oldest keeps its end alone"
        await eventually(lambda: stored(bus, bakes[-1], "Success"))
        # Where the ends alone are too many, the oldest bakes go as a whole.
        await shrink(bus, 64 * 2**10)

        async def first_gone() -> bool:
            return not await stored(bus, bakes[0], "Success")

        await eventually(first_gone, what="the oldest bake gone")
        last = await boss.bake(xml, node="alpha")
        await eventually(lambda: stored(bus, last, "Success"), what="a new end in the stream")


async def test_bakes_that_go_on_for_ever_keep_a_voice(tmp_path: Path) -> None:
    """Their heartbeats alone fill the stream, and none of them has ended."""
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
        net.connect("builder-alpha") as bus,
    ):
        await shrink(bus, 2**20)
        xml = '<recipe name="long" status-interval-ms="5"><cli command="sleep 600"/></recipe>'
        bakes = [await boss.bake(xml, node="alpha") for _ in range(10)]
        await eventually(lambda: "no room" in net.node.log.read_text(), within=60, what="a full stream")
        for bake in bakes:
            assert (await bake.cancel()).accepted
        for bake in bakes:
            await eventually(lambda bake=bake: stored(bus, bake, "Cancelled"), what="the end in the stream")
