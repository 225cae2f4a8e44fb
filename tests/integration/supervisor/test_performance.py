"""A Supervisor hears the nodes that its bakes run on, from its first bake there to its last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bakemesh.protocol.builder.messages import CohortMessage, Performance
from bakemesh.supervisor import Closed, blocking
from support.house import Gate
from support.mesh import Mesh, mesh
from support.waiting import eventually


def held(gate: Gate) -> str:
    return f'<recipe name="held"><cli shell="yes" command="{gate.wait}"/></recipe>'


async def test_from_the_first_bake_on_a_node_to_the_last(tmp_path: Path) -> None:
    first, second = Gate(tmp_path / "first"), Gate(tmp_path / "second")
    async with mesh(tmp_path, nodes=("alpha", "beta")) as net, net.supervisor("boss") as boss:
        assert boss.performance == {}
        one = await boss.bake(held(first), node="alpha")
        two = await boss.bake(held(second), node="alpha")
        await eventually(lambda: boss.performance, what="Performance of the node")
        assert set(boss.performance) == {"alpha"}
        assert boss.performance["alpha"].node == "alpha"
        first.open()
        await one.outcome()
        async with asyncio.timeout(20):  # longer than it lingers: another bake is still there
            async for notice in boss.notices():
                if isinstance(notice.message, Performance):
                    break
        assert set(boss.performance) == {"alpha"}
        second.open()
        await two.outcome()
        await eventually(lambda: boss.performance == {}, what="nothing heard any more")


async def test_a_bake_that_nobody_holds_any_more_holds_no_subscription(tmp_path: Path) -> None:
    async with mesh(tmp_path) as net, net.supervisor("boss") as boss:
        gate = Gate(tmp_path / "gate")
        bake = await boss.bake(held(gate))
        await eventually(lambda: boss.performance, what="Performance of the node")
        await bake.close()
        del bake
        await eventually(lambda: boss.performance == {}, what="nothing heard any more")
        gate.open()


async def test_cohort_messages_to_the_node_are_heard_and_only_there(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path, "--operator", "ops", nodes=("alpha", "beta")) as net,
        net.supervisor("ops") as ops,
        net.supervisor("boss") as boss,
    ):
        gate = Gate(tmp_path / "gate")
        bake = await boss.bake(held(gate), node="alpha")
        await eventually(lambda: boss.performance, what="it listens")
        notices = boss.notices()
        await ops.cohort("all").set(["beta", "alpha"])
        await ops.cohort("all").send("Flush", {"depth": 2})
        async with asyncio.timeout(20):
            async for notice in notices:
                if isinstance(notice.message, CohortMessage):
                    break
        assert (notice.node_id, notice.sender) == ("alpha", "ops")
        assert notice.message.entries() == {"cohort": "all", "verb": "Flush", "entries": {"depth": 2}}
        gate.open()
        await bake.outcome()
        waiting = asyncio.create_task(anext(boss.notices()))
        await asyncio.sleep(0)
        await boss.close()
        with pytest.raises(Closed):
            await waiting


async def test_the_same_without_asyncio(tmp_path: Path) -> None:
    def work(net: Mesh, gate: Gate) -> None:
        with blocking.Supervisor(net.url, "boss", credentials=net.credentials("boss")) as boss:
            bake = boss.bake(held(gate))
            with boss.notices() as notices:
                notice = next(notices)
            assert (notice.node_id, notice.message.node_id) == ("alpha", "alpha")
            assert boss.performance["alpha"] == notice.message
            gate.open()
            bake.outcome()

    async with mesh(tmp_path) as net:
        await asyncio.to_thread(work, net, Gate(tmp_path / "gate"))
