"""TERM at any moment: code 0, in bounded time, no process left, and what may run again is left to the next
start. The deadlines here are what the Builder promises.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bakemesh.protocol.builder.messages import BakeSuccess
from support.builder import RunningBuilder, builder
from support.disks import fill_disk, small_disk
from support.mesh import Mesh, mesh
from support.nats import TcpLink, server
from support.processes import alive
from support.waiting import eventually

IDLE_S, BUSY_S = 10.0, 16.0


async def stopped(node: RunningBuilder, within: float) -> None:
    async with asyncio.timeout(within):
        assert await node.stop() == 0, node.log.read_text()[-3000:]
    assert "Traceback" not in node.log.read_text()


async def test_while_it_connects(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        url = f"nats://127.0.0.1:{nobody.getsockname()[1]}"
        node = RunningBuilder(url, "alpha", tmp_path / "state", tmp_path / "log")
        await node.launch()
        lock = node.state / "builder.lock"
        await eventually(lambda: lock.exists() and lock.read_text(), what="the start")
        await stopped(node, IDLE_S)


@asynccontextmanager
async def behind_link(folder: Path) -> AsyncIterator[tuple[RunningBuilder, TcpLink]]:
    """A Builder whose bus can become a black hole."""
    async with server(folder) as nats:
        link = TcpLink(("127.0.0.1", nats.config.port))
        await link.start()
        try:
            async with builder(folder, link.url) as node:
                yield node, link
        finally:
            await link.close()


async def test_idle_while_the_bus_says_nothing(tmp_path: Path) -> None:
    async with behind_link(tmp_path) as (node, link):
        link.stall()
        await stopped(node, IDLE_S)


async def test_idle_while_the_bus_is_away(tmp_path: Path) -> None:
    async with mesh(tmp_path) as net:
        await net.nats.kill()
        await eventually(lambda: "bus link down" in net.node.log.read_text(), what="the lost link")
        await stopped(net.node, IDLE_S)


def chatty(folder: Path, lines: int = 10**9, *, pause: float = 0.0) -> str:
    """A step that writes as fast as it may, and may run again."""
    path = folder / "chatty.py"
    path.write_text(
        f"import sys, time\nfor i in range({lines}):\n"
        f"    sys.stdout.write('b' * 1023 + '\\n'); time.sleep({pause})\n"
    )
    step = f'<cli retryable="yes"><arg>{sys.executable}</arg><arg>{path}</arg></cli>'
    return f'<recipe name="chatty">{step}</recipe>'


async def goes_on(net: Mesh, folder: Path) -> None:
    """What was cut by the stop runs again at the next start."""
    chatty(folder, 3)
    await net.node.start()
    async with net.supervisor("boss") as boss:
        bake = await boss.attach("boss-chatty-1", node_id="alpha")
        assert isinstance(await asyncio.wait_for(bake.outcome(), 30), BakeSuccess)
        assert bake.latest is not None
        assert max([status.attempt or 0 async for status in bake.status()]) == 2


async def test_busy_while_the_bus_is_away(tmp_path: Path) -> None:
    async with mesh(tmp_path) as net, net.supervisor("boss") as boss:
        bake = await boss.bake(chatty(tmp_path), node="alpha")
        assert bake.recipe_id == "boss-chatty-1"
        async for _ in bake.data():
            break
        await net.nats.kill()
        await eventually(lambda: "bus link down" in net.node.log.read_text(), what="the lost link")
        await stopped(net.node, BUSY_S)
        assert not alive(str(tmp_path / "chatty.py"))
        await net.nats.start()
        await goes_on(net, tmp_path)


async def test_busy_while_the_disk_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "state-alpha", "24m") as disk:
        async with mesh(tmp_path) as net, net.supervisor("boss") as boss:
            bake = await boss.bake(chatty(tmp_path, pause=0.002), node="alpha")
            async for _ in bake.data():
                break
            ballast = fill_disk(disk)
            await eventually(lambda: "no room on the disk" in net.node.log.read_text(), what="the full disk")
            await stopped(net.node, BUSY_S)
            assert not alive(str(tmp_path / "chatty.py"))
            ballast.unlink()
            await goes_on(net, tmp_path)
