"""Many nodes and many dashboards on one server, in small numbers: every node bakes, every dashboard gets each
Status of its node once, whatever another one does. The large numbers are bench/many_nodes.py's.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bakemesh.bus.reader import read
from bakemesh.protocol import storage, subjects
from bakemesh.supervisor import Bake, Supervisor
from support.house import Gate, check_story
from support.nats import MESH, server
from support.simulated import dashboards, digest_of, simulated, stuck_dashboard
from support.waiting import eventually

NODES, BOARDS = 12, 120


def status_of(node_id: str) -> str:
    """Every Status and outcome of a node's bakes (Data too, of which these bakes have none)."""
    return f"{MESH}.{node_id}.*.*.{subjects.BAKE}.*"


def held(gate: Gate) -> str:
    """Runs until the gate opens, with a heartbeat of 50 ms."""
    return (
        '<recipe name="held" status-interval-ms="50">'
        f'<cli name="step" shell="yes" command="{gate.wait}"/></recipe>'
    )


async def bodies(boss: Supervisor, node_id: str) -> list[bytes]:
    """Every stored Status of a node, in order."""
    stream = storage.status_stream(MESH, node_id)
    return [one.payload async for one in read(boss.bus, stream, status_of(node_id), end="last")]


async def end_of(bake: Bake) -> None:
    """Its whole story is sound, and it went well."""
    statuses = [status async for status in bake.status()]
    check_story(statuses, bake)
    assert statuses[-1].outcome == "success", statuses[-1].summary
    assert [chunk async for chunk in bake.data()] == []


@pytest.mark.timeout(180)
async def test_every_node_bakes_and_every_dashboard_sees_each_status_of_its_node_once(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(NODES)]
    async with (
        server(tmp_path) as nats,
        simulated(tmp_path, nats.url, names),
        Supervisor.connect(nats=nats.url, name="boss") as boss,
    ):
        known = await boss.nodes()
        assert sorted(node.node_id for node in known if node.alive) == sorted(names)
        wanted = [names[number % NODES] for number in range(BOARDS)]
        async with dashboards(nats.url, [status_of(name) for name in wanted]) as boards:
            gate = Gate(tmp_path / "gate")
            bakes = [await boss.bake(held(gate), node_id=name) for name in names]
            assert all(bake.result is not None and bake.result.accepted for bake in bakes)
            # All of them run side by side: each says more while no other one has ended.
            await eventually(
                lambda: all(bake.latest is not None and bake.latest.serial >= 12 for bake in bakes),
                what="a dozen Status of each bake",
                within=60,
            )
            assert not any(bake.terminal for bake in bakes)
            gate.open()
            await asyncio.gather(*(end_of(bake) for bake in bakes))
            stored = {name: await bodies(boss, name) for name in names}
            for name, board in zip(wanted, boards, strict=True):
                await eventually(
                    lambda board=board, name=name: board.count >= len(stored[name]),
                    what=f"a dashboard of {name}",
                )
                assert (board.count, board.digest) == (len(stored[name]), digest_of(stored[name]))


@pytest.mark.timeout(180)
async def test_a_dashboard_that_hangs_is_cut_and_costs_the_others_nothing(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        simulated(tmp_path, nats.url, ["n0", "n1"]),
        Supervisor.connect(nats=nats.url, name="boss") as boss,
        dashboards(nats.url, [status_of("n0"), status_of("n1")] * 20) as boards,
    ):
        gate = Gate(tmp_path / "gate")
        with stuck_dashboard(nats.url, f"{MESH}.>", windows=2000):
            bakes = [await boss.bake(held(gate), node_id=name) for name in ("n0", "n1")]
            await eventually(
                lambda: "Slow Consumer" in nats.config.log_file.read_text(),
                what="the server to cut it",
                within=60,
            )
            gate.open()
            await asyncio.gather(*(end_of(bake) for bake in bakes))
        for place, board in enumerate(boards):
            stored = await bodies(boss, f"n{place % 2}")
            await eventually(
                lambda board=board, stored=stored: board.count >= len(stored), what="its dashboards"
            )
            assert (board.count, board.digest, board.lost) == (len(stored), digest_of(stored), False)
