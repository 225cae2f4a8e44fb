"""The node's streams full: who waits is told, old bakes make room, and what matters is heard."""

from __future__ import annotations

from pathlib import Path

from bakemesh.bus import Bus
from bakemesh.bus.errors import StoreFull
from bakemesh.bus.purge import purge_subject
from bakemesh.bus.sealing import Sealed
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.protocol.subjects import build
from support.mesh import mesh


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
