"""Drain, Resume and Down: what a node that is taken out of work refuses, lets end, cancels, and remembers."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from bakemesh.bus.errors import AccessDenied
from bakemesh.protocol import subjects
from bakemesh.protocol.builder.messages import BakeCancelled, BakeFailed, BakeSuccess, Result
from bakemesh.protocol.builder.node import ComponentVerb, DrainNode, NodeVerb
from bakemesh.supervisor import NodeState, RecipeRejected, Supervisor
from support.house import Gate, said
from support.mesh import Mesh, mesh
from support.modules import board, instances, module, recipe
from support.processes import gone
from support.waiting import eventually

QUICK = '<recipe name="quick"><cli command="true"/></recipe>'


def held(gate: Gate, more: str = "") -> str:
    return f'<recipe name="held"><cli shell="yes" command="{gate.wait}" retryable="yes"/>{more}</recipe>'


@asynccontextmanager
async def operated(
    folder: Path, *flags: str, nodes: tuple[str, ...] = ("alpha",)
) -> AsyncIterator[tuple[Mesh, Supervisor, Supervisor, Gate]]:
    """A guarded mesh, its boss, its operator, and a gate."""
    async with (
        mesh(folder, "--operator", "ops", *flags, nodes=nodes) as net,
        net.supervisor("boss") as boss,
        net.supervisor("ops") as ops,
    ):
        yield net, boss, ops, Gate(folder / "gate")


async def state(supervisor: Supervisor, node_id: str = "alpha") -> NodeState:
    """Of a node, as the mesh sees it."""
    return next(node.state for node in await supervisor.nodes() if node.node_id == node_id)


async def becomes(supervisor: Supervisor, wanted: NodeState, node_id: str = "alpha") -> None:
    async def there() -> bool:
        return await state(supervisor, node_id) is wanted

    await eventually(there, what=f"node {node_id} {wanted}")


async def test_a_draining_node_refuses_and_lets_end_and_takes_again_once_resumed(tmp_path: Path) -> None:
    async with operated(tmp_path, nodes=("alpha", "beta")) as (_, boss, ops, gate):
        bake = await boss.bake(held(gate), node="alpha")
        await said(bake, lambda status: status.kind == "step")
        result = await ops.control_node(NodeVerb.DRAIN, "alpha")
        assert (result.accepted, result.verb, result.node_id) == (True, "Drain", "alpha")
        assert "1 bake" in result.summary
        with pytest.raises(RecipeRejected, match="draining") as refused:
            await boss.bake(QUICK, node="alpha")
        assert refused.value.code == "draining"
        await becomes(boss, NodeState.DRAINING)
        elsewhere = [await boss.bake(QUICK) for _ in range(4)]
        assert {each.node_id for each in elsewhere} == {"beta"}
        assert bake.terminal is None
        gate.open()
        assert isinstance(await bake.outcome(), BakeSuccess)
        await becomes(boss, NodeState.DRAINED)
        again = await ops.control_node(NodeVerb.RESUME, "alpha")
        assert (again.accepted, again.verb) == (True, "Resume")
        assert isinstance(await (await boss.bake(QUICK, node="alpha")).outcome(), BakeSuccess)
        await becomes(boss, NodeState.READY)


async def test_bakes_that_run_on_after_the_time_are_cancelled_queued_ones_too(tmp_path: Path) -> None:
    async with operated(tmp_path, "--max-bakes", "1") as (_, boss, ops, gate):
        running, queued = await boss.bake(held(gate)), await boss.bake(held(gate))
        await said(running, lambda status: status.kind == "step")
        assert (await ops.control_node(NodeVerb.DRAIN, "alpha", timeout_s=0.2)).accepted
        for bake in (running, queued):
            assert isinstance(await bake.outcome(), BakeCancelled)
            acks = [status async for status in bake.status() if status.kind == "ack"]
            assert [(each.verb, each.issuedby) for each in acks] == [("Cancel", "builder-alpha")]
        await becomes(boss, NodeState.DRAINED)


async def test_a_later_drain_has_its_own_time(tmp_path: Path) -> None:
    async with operated(tmp_path) as (_, boss, ops, gate):
        bake = await boss.bake(held(gate))
        await ops.control_node(NodeVerb.DRAIN, "alpha")
        await becomes(boss, NodeState.DRAINING)
        await ops.control_node(NodeVerb.DRAIN, "alpha", timeout_s=0)
        assert isinstance(await bake.outcome(), BakeCancelled)


async def test_a_bake_that_runs_gets_its_child_from_the_draining_node(tmp_path: Path) -> None:
    child = '<recipe name="part" node="alpha"><cli command="true"/></recipe>'
    async with operated(tmp_path) as (_, boss, ops, gate):
        bake = await boss.bake(held(gate, child))
        await said(bake, lambda status: status.kind == "step")
        await ops.control_node(NodeVerb.DRAIN, "alpha")
        gate.open()
        outcome = await bake.outcome()
        assert isinstance(outcome, BakeSuccess), outcome.summary
        await becomes(boss, NodeState.DRAINED)


async def test_who_may_ask(tmp_path: Path) -> None:
    async with operated(tmp_path) as (net, boss, ops, _):
        with pytest.raises(AccessDenied):
            await boss.control_node(NodeVerb.DRAIN, "alpha")
        # Sent under its own name, said to be of another.
        subject = subjects.build(ops.bus.mesh, "alpha", "ops", subjects.NO_KEY, DrainNode.TYPE)
        answer = (await ops.bus.request(subject, DrainNode(issuedby="boss"), 5)).message
        assert isinstance(answer, Result)
        assert (answer.accepted, answer.code) == (False, "unauthorised")
        assert await state(boss) is NodeState.READY
        # An operator of the mesh whom this node does not know.
        async with net.builder("beta"):
            refused = await ops.control_node(NodeVerb.DRAIN, "beta")
            assert (refused.accepted, refused.code) == (False, "unauthorised")


async def test_on_an_open_mesh_everybody_may(tmp_path: Path) -> None:
    async with mesh(tmp_path, guard=False) as net, net.supervisor("anybody") as one:
        assert (await one.control_node(NodeVerb.DRAIN, "alpha")).accepted
        await becomes(one, NodeState.DRAINED)


@pytest.mark.parametrize("way", ["crash", "term"])
async def test_a_drain_outlives_the_builder(tmp_path: Path, way: str) -> None:
    async with operated(tmp_path, "--on-stop", "keep") as (net, boss, ops, gate):
        bake = await boss.bake(held(gate))
        await said(bake, lambda status: status.kind == "step")
        await ops.control_node(NodeVerb.DRAIN, "alpha")
        if way == "crash":
            await net.node.kill9()
        else:
            assert await net.node.stop() == 0
        await net.node.start()
        with pytest.raises(RecipeRejected, match="draining"):
            await boss.bake(QUICK, node_id="alpha")
        gate.open()
        assert isinstance(await bake.outcome(), BakeSuccess)
        await becomes(boss, NodeState.DRAINED)
        await ops.control_node(NodeVerb.RESUME, "alpha")
        await net.node.kill9()
        await net.node.start()
        assert isinstance(await (await boss.bake(QUICK, node_id="alpha")).outcome(), BakeSuccess)


async def test_down_lets_bakes_end_and_ends_the_builder_and_the_next_start_works(tmp_path: Path) -> None:
    async with operated(tmp_path) as (net, boss, ops, gate):
        bake = await boss.bake(held(gate))
        await said(bake, lambda status: status.kind == "step")
        result = await ops.control_node(NodeVerb.DOWN, "alpha")
        assert (result.accepted, result.verb) == (True, "Down")
        # A Drain that comes meanwhile does not keep it.
        assert (await ops.control_node(NodeVerb.DRAIN, "alpha")).accepted
        gate.open()
        assert isinstance(await bake.outcome(), BakeSuccess)
        assert await net.node.ended() == 7
        assert await state(boss) is NodeState.UNRESPONSIVE
        await net.node.start()
        assert isinstance(await (await boss.bake(QUICK, node_id="alpha")).outcome(), BakeSuccess)


async def test_a_down_goes_on_after_a_crash(tmp_path: Path) -> None:
    async with operated(tmp_path) as (net, boss, ops, gate):
        bake = await boss.bake(held(gate))
        await said(bake, lambda status: status.kind == "step")
        await ops.control_node(NodeVerb.DOWN, "alpha")
        await net.node.kill9()
        await net.node.start()
        gate.open()
        assert isinstance(await bake.outcome(), BakeSuccess)
        assert await net.node.ended() == 7


async def test_a_down_outlives_a_stop_of_the_builder_that_ends_its_bakes(tmp_path: Path) -> None:
    async with operated(tmp_path, "--on-stop", "keep") as (net, boss, ops, gate):
        bake = await boss.bake(held(gate).replace('retryable="yes"', ""))
        await said(bake, lambda status: status.kind == "step")
        await ops.control_node(NodeVerb.DOWN, "alpha")
        assert await net.node.stop() == 0
        await net.node.start()
        assert isinstance(await bake.outcome(), BakeFailed)
        assert await net.node.ended() == 7


async def test_resume_during_down(tmp_path: Path) -> None:
    async with operated(tmp_path) as (net, boss, ops, gate):
        bake = await boss.bake(held(gate))
        await said(bake, lambda status: status.kind == "step")
        await ops.control_node(NodeVerb.DOWN, "alpha")
        assert (await ops.control_node(NodeVerb.RESUME, "alpha")).accepted
        gate.open()
        await bake.outcome()
        assert isinstance(await (await boss.bake(QUICK, node="alpha")).outcome(), BakeSuccess)
        assert net.node.process is not None
        assert net.node.process.returncode is None
        await asyncio.gather(*(ops.control_node(verb, "alpha") for verb in (NodeVerb.DRAIN, NodeVerb.RESUME)))


# -- with components

MODULES = recipe(module("base"), module("top", depends="base"), module("alone"))


async def test_components_stop_once_no_bake_runs_and_start_again_with_resume(tmp_path: Path) -> None:
    async with operated(tmp_path, "--on-stop", "stop") as (_, boss, ops, gate), board(boss.bus) as seen:
        assert isinstance(await (await boss.bake(MODULES)).outcome(), BakeSuccess)
        bake = await boss.bake(held(gate))
        await said(bake, lambda status: status.kind == "step")
        await ops.control_node(NodeVerb.DRAIN, "alpha")
        await becomes(boss, NodeState.DRAINING)
        assert {each.state for each in await boss.components("alpha")} == {"ready"}
        gate.open()
        await bake.outcome()
        await becomes(boss, NodeState.DRAINED)
        assert {each.state for each in await boss.components("alpha")} == {"stopped"}
        refused = await ops.control_component(ComponentVerb.START, "alone")
        assert (refused.accepted, refused.code) == (False, "draining")
        await ops.control_node(NodeVerb.RESUME, "alpha")
        for name in ("base", "top", "alone"):
            await seen.until(name, "ready")


async def test_a_resume_after_a_restart_starts_what_the_drain_stopped(tmp_path: Path) -> None:
    async with operated(tmp_path) as (net, boss, ops, _):
        assert isinstance(await (await boss.bake(recipe(module("one")))).outcome(), BakeSuccess)
        await ops.control_node(NodeVerb.DRAIN, "alpha")
        await becomes(boss, NodeState.DRAINED)
        await net.node.kill9()
        await net.node.start()
        await becomes(boss, NodeState.DRAINED)
        await ops.control_node(NodeVerb.RESUME, "alpha")

        async def ready() -> bool:
            return [each.state for each in await boss.components("alpha")] == ["ready"]

        await eventually(ready, what="the component ready again")
        assert (await ops.control_component(ComponentVerb.STOP, "one")).accepted


def noted(net: Mesh, key: str, value: str) -> None:
    """What the journal of a Builder that is dead would hold had it died elsewhere."""
    with closing(sqlite3.connect(net.node.state / "journal.db")) as db, db:
        assert db.execute("UPDATE meta SET value=? WHERE key=?", (value, key)).rowcount == 1


async def test_a_builder_that_died_over_a_resume_is_followed_by_one_that_carries_it_out(
    tmp_path: Path,
) -> None:
    async with operated(tmp_path) as (net, boss, ops, _), board(boss.bus) as seen:
        assert isinstance(await (await boss.bake(recipe(module("one")))).outcome(), BakeSuccess)
        await ops.control_node(NodeVerb.DRAIN, "alpha")
        await becomes(boss, NodeState.DRAINED)
        await net.node.kill9()
        noted(net, "drain", "")  # the Resume was journaled, and no component was asked yet
        await net.node.start()
        await seen.until("one", "ready")
        assert (await ops.control_component(ComponentVerb.STOP, "one")).accepted
        await seen.until("one", "stopped")


async def test_a_resume_starts_nothing_that_a_drain_of_an_earlier_boot_stopped(tmp_path: Path) -> None:
    async with operated(tmp_path) as (net, boss, ops, _), board(boss.bus) as seen:
        assert isinstance(await (await boss.bake(recipe(module("one")))).outcome(), BakeSuccess)
        await ops.control_node(NodeVerb.DRAIN, "alpha")
        await becomes(boss, NodeState.DRAINED)
        await net.node.kill9()
        noted(net, "machine boot", "another")
        await net.node.start()
        await seen.until("one", lambda row: "earlier start" in row["reason"])
        await ops.control_node(NodeVerb.DRAIN, "alpha")
        await becomes(boss, NodeState.DRAINED)
        await ops.control_node(NodeVerb.RESUME, "alpha")
        bake = await boss.bake(recipe(module("two")), node_id="alpha")
        assert isinstance(await bake.outcome(), BakeSuccess)
        await seen.until("two", "ready")
        assert {row.name: row.state for row in await boss.components("alpha")}["one"] == "stopped"
        assert instances("one", net.node.state) == []
        assert (await ops.control_component(ComponentVerb.STOP, "two")).accepted
        await seen.until("two", "stopped")


DEAF = 'trap "" TERM; while :; do sleep 0.05; done'


async def test_resume_comes_too_late_where_down_stops_components_and_a_crash_then_does_not_undo_it(
    tmp_path: Path,
) -> None:
    async with operated(tmp_path) as (net, boss, ops, _):
        modules = recipe(module("one"), module("deaf", DEAF, shutdown_ms=4000))
        assert isinstance(await (await boss.bake(modules)).outcome(), BakeSuccess)
        (before,) = await boss.nodes()
        (pid,) = instances("one", net.node.state)
        await ops.control_node(NodeVerb.DOWN, "alpha")
        await eventually(lambda: gone(pid), what="the end of the first component")
        late = await ops.control_node(NodeVerb.RESUME, "alpha")
        assert (late.accepted, late.code) == (False, "terminal")
        assert "goes down" in late.summary
        assert (await ops.control_node(NodeVerb.DRAIN, "alpha")).accepted
        await net.node.kill9()
        await net.node.start()
        assert await net.node.ended() == 7
        assert instances("deaf", net.node.state) == []
        await net.node.start()
        assert isinstance(await (await boss.bake(QUICK, node_id="alpha")).outcome(), BakeSuccess)
        (after,) = await boss.nodes()
        assert after.status.boot != before.status.boot
        assert {each.state for each in await boss.components()} == {"stopped"}


async def test_down_ends_the_components_and_the_next_start_of_the_node_is_a_new_one(tmp_path: Path) -> None:
    async with operated(tmp_path) as (net, boss, ops, _):
        assert isinstance(await (await boss.bake(recipe(module("one")))).outcome(), BakeSuccess)
        (before,) = await boss.nodes()
        (pid,) = instances("one", net.node.state)
        await ops.control_node(NodeVerb.DOWN, "alpha")
        assert await net.node.ended() == 7
        assert gone(pid)
        (ended,) = await boss.nodes()
        assert (ended.status.draining, [each.state for each in await boss.components()]) == (1, ["stopped"])
        await net.node.start()
        (after,) = await boss.nodes()
        assert after.status.boot != before.status.boot
        assert after.state is NodeState.READY
        assert {each.state for each in await boss.components()} <= {"stopped"}, (
            "the Startup Supervisor's work"
        )
