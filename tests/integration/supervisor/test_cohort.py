"""Cohorts by the SDK against real Builders: one is dead, and holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bakemesh.bus.errors import AccessDenied
from bakemesh.protocol.builder.messages import BakeCancelled, BakeFailed, BakeSuccess
from bakemesh.supervisor import Cohort, CohortUnknown, NodeUnknown, Supervisor, blocking
from support.house import Gate
from support.mesh import Mesh, mesh
from support.waiting import eventually

NODES = ("alpha", "beta", "ghost")
SHORT_S = 1.0


@asynccontextmanager
async def web(folder: Path) -> AsyncIterator[tuple[Mesh, Supervisor, Cohort]]:
    """A guarded mesh with a cohort of alpha, beta and the dead ghost; and its boss."""
    async with (
        mesh(folder, "--operator", "ops", nodes=NODES) as net,
        net.supervisor("ops") as ops,
        net.supervisor("boss") as boss,
    ):
        assert await ops.cohort("web").set(NODES) == NODES
        await net.nodes["ghost"].stop()
        yield net, boss, boss.cohort("web")


async def test_who_is_in_it_and_who_may_say_so(tmp_path: Path) -> None:
    async with web(tmp_path) as (net, boss, cohort), net.supervisor("ops") as ops:
        assert await cohort.members() == NODES
        assert await boss.cohorts() == {"web": NODES}
        with pytest.raises(AccessDenied):
            await cohort.set(["alpha"])
        with pytest.raises(NodeUnknown):
            await ops.cohort("web").set(["nobody"])
        with pytest.raises(CohortUnknown):
            await boss.cohort("none").members()
        await ops.cohort("web").remove()
        with pytest.raises(CohortUnknown):
            await cohort.members()


async def test_a_message_is_summed_up_and_the_dead_member_is_silent(tmp_path: Path) -> None:
    async with web(tmp_path) as (_, _, cohort):
        summary = await cohort.send("Flush", {"depth": 2})
        assert (sorted(summary.accepted), summary.refused, summary.silent) == (
            ["alpha", "beta"],
            {},
            ("ghost",),
        )
        assert {result.node_id for result in summary.accepted.values()} == {"alpha", "beta"}


async def test_a_bake_on_each_and_the_silent_one_holds_nobody(tmp_path: Path) -> None:
    xml = '<recipe name="where"><cli shell="yes" command="[ ${node} = alpha ]"/></recipe>'
    async with web(tmp_path) as (net, _, cohort):
        baking = await cohort.bake(xml, result_timeout_s=SHORT_S)
        assert sorted(baking.bakes) == sorted(NODES)
        assert len({bake.recipe_id for bake in baking.bakes.values()}) == 3
        outcomes = await baking.outcomes()
        assert isinstance(outcomes["alpha"], BakeSuccess)
        assert isinstance(outcomes["beta"], BakeFailed)
        assert "ghost" not in outcomes
        summary = baking.summary
        assert (summary.succeeded, summary.failed, summary.silent) == (("alpha",), ("beta",), ("ghost",))
        assert str(summary) == "1 succeeded, 1 failed, 1 silent"
        # It has its recipe all the same, and is heard of when it is back.
        await net.nodes["ghost"].start()
        assert isinstance(await baking.bakes["ghost"].outcome(), BakeFailed)
        assert baking.summary.silent == ()


async def test_one_that_wakes_while_others_bake_counts(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    xml = f'<recipe name="held"><cli shell="yes" command="{gate.wait}"/></recipe>'
    async with web(tmp_path) as (net, _, cohort):
        baking = await cohort.bake(xml, result_timeout_s=SHORT_S)
        waiting = asyncio.create_task(baking.outcomes())
        await net.nodes["ghost"].start()
        await eventually(lambda: baking.summary.running == ("alpha", "beta", "ghost"), what="all three bake")
        gate.open()
        assert {type(outcome) for outcome in (await waiting).values()} == {BakeSuccess}
        assert baking.summary.pct == 100


async def test_a_refused_recipe_is_told_by_member_and_cancel_reaches_all(tmp_path: Path) -> None:
    async with web(tmp_path) as (_, _, cohort):
        bad = await cohort.bake("<recipe><nonsense/></recipe>", result_timeout_s=SHORT_S)
        assert sorted(bad.refused) == ["alpha", "beta"]
        assert await bad.outcomes() == {}
        assert bad.summary.refused == ("alpha", "beta")
        baking = await cohort.bake(
            '<recipe name="long"><cli command="sleep 600"/></recipe>', result_timeout_s=SHORT_S
        )
        stopped = await baking.cancel()
        assert (sorted(stopped.accepted), stopped.silent) == (["alpha", "beta"], ("ghost",))
        assert {type(outcome) for outcome in (await baking.outcomes()).values()} == {BakeCancelled}


async def test_the_same_without_asyncio(tmp_path: Path) -> None:
    def work(net: Mesh) -> None:
        with blocking.Supervisor(net.url, "boss", credentials=net.credentials("boss")) as boss:
            cohort = boss.cohort("web")
            assert cohort.members() == NODES
            assert cohort.send("Flush").silent == ("ghost",)
            baking = cohort.bake('<recipe name="quick"><cli command="true"/></recipe>', expires_s=30)
            assert {node for node, _ in baking.ended()} == {"alpha", "beta"}
            assert baking.summary.silent == ("ghost",)

    async with web(tmp_path) as (net, _, _):
        await asyncio.to_thread(work, net)
