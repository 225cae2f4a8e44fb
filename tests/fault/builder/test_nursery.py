"""Script cranks of a real Builder are forks of its nursery; kill -9 of it, of the Builder, of a shim."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from bakemesh.protocol.builder.messages import BakeOutcome, BakeSuccess
from bakemesh.supervisor import Supervisor
from support.mesh import Mesh, mesh
from support.modules import Board, board, end_everything, everything_of, instances, module, recipe, shim_of
from support.processes import children, gone
from support.waiting import eventually

CRANK = """
async def crank(api):
    api.watch("pid", __import__("os").getpid())
    async for message in api.messages():
        pass
"""
BUSY_S = 60.0


def script(name: str) -> str:
    """A step with a script crank."""
    crank = f'<crank script="{name}.py"><![CDATA[{CRANK}]]></crank>'
    return f'<module name="{name}">{crank}</module>'


class Hall:
    def __init__(self, net: Mesh, boss: Supervisor, seen: Board) -> None:
        self.net, self.boss, self.seen = net, boss, seen

    async def bake(self, *steps: str) -> BakeOutcome:
        bake = await self.boss.bake(recipe(*steps), node_id="alpha")
        return await bake.outcome()

    async def ready(self, name: str, *, not_pid: int = 0) -> int:
        """Its pid, once it is ready."""
        row = await self.seen.until(name, lambda row: row["state"] == "ready" and row["pid"] != not_pid)
        assert instances(name, self.net.node.state) == [row["pid"]]
        return int(row["pid"])

    def nurses(self) -> list[int]:
        """The Builder's nurseries that live."""
        return [pid for pid in children(self.net.node.pid) if name_of(pid) == "bakemesh-nurse"]


def name_of(pid: int) -> str:
    """The command name; empty where it is gone."""
    with suppress(OSError):
        return "" if gone(pid) else Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


@asynccontextmanager
async def hall(folder: Path, on_stop: str = "stop") -> AsyncIterator[Hall]:
    async with (
        mesh(folder, "--on-stop", on_stop, guard=False) as net,
        net.supervisor("boss") as boss,
        net.connect("witness") as bus,
        board(bus) as seen,
    ):
        try:
            yield Hall(net, boss, seen)
            if on_stop == "stop":
                assert await net.node.stop() == 0
                assert everything_of(net.node.state) == []
        finally:
            await end_everything(net.node.state)


async def test_a_builder_without_script_cranks_has_no_nursery(tmp_path: Path) -> None:
    async with hall(tmp_path) as here:
        assert isinstance(await here.bake(module("plain")), BakeSuccess)
        assert here.nurses() == []
        assert isinstance(await here.bake(script("one")), BakeSuccess)
        (nurse,) = here.nurses()
        assert parent(shim_of(await here.ready("one"))) == nurse
        assert parent(shim_of((await here.seen.until("plain", "ready"))["pid"])) != nurse
    assert gone(nurse)


async def test_cranks_live_on_without_their_nursery_and_new_ones_come(tmp_path: Path) -> None:
    async with hall(tmp_path) as here:
        assert isinstance(await here.bake(script("one")), BakeSuccess)
        first = await here.ready("one")
        (nurse,) = here.nurses()
        os.kill(nurse, signal.SIGKILL)
        assert isinstance(await here.bake(script("two")), BakeSuccess)
        await here.ready("two")
        assert await here.ready("one") == first
        await eventually(lambda: here.nurses() not in ([], [nurse]), within=BUSY_S, what="the next nursery")
        assert isinstance(await here.bake(script("three")), BakeSuccess)
        await here.ready("three")


async def test_a_killed_builder_takes_its_nursery_and_leaves_the_cranks(tmp_path: Path) -> None:
    async with hall(tmp_path) as here:
        assert isinstance(await here.bake(script("one")), BakeSuccess)
        pid = await here.ready("one")
        (nurse,) = here.nurses()
        await here.net.node.kill9()
        await eventually(lambda: gone(nurse), what="the nursery's end")
        assert not gone(pid)
        here.seen.latest.clear()
        await here.net.node.start()
        assert await here.ready("one") == pid
        assert here.nurses() == [], "nothing was started yet"


async def test_a_crank_whose_shim_was_killed_dies_and_comes_again(tmp_path: Path) -> None:
    async with hall(tmp_path) as here:
        assert isinstance(await here.bake(script("one")), BakeSuccess)
        pid = await here.ready("one")
        os.kill(shim_of(pid), signal.SIGKILL)
        assert await here.ready("one", not_pid=pid) != pid
        assert gone(pid)


async def test_a_builder_that_lets_go_of_its_cranks_finds_them_again(tmp_path: Path) -> None:
    async with hall(tmp_path, "keep") as here:
        assert isinstance(await here.bake(script("one")), BakeSuccess)
        pid = await here.ready("one")
        (nurse,) = here.nurses()
        assert await here.net.node.stop() == 0
        assert gone(nurse)
        here.seen.latest.clear()
        await here.net.node.start()
        assert await here.ready("one") == pid
