"""Child recipes: a step that bakes on another node's real Builder, and what happens when that goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakemesh.builder.children import ChildRecipes
from bakemesh.builder.children.book import ChildBook
from bakemesh.builder.clock import Clock
from bakemesh.builder.journal import Journal
from bakemesh.builder.output import PassedChunk
from bakemesh.builder.steps.base import StopReason
from bakemesh.bus import Bus
from bakemesh.protocol.builder.codes import Code, StepOutcome, Verb
from bakemesh.protocol.builder.messages import BakeCancelled, BakeSuccess
from bakemesh.protocol.builder.spec import load_recipe
from bakemesh.protocol.builder.spec.model import RecipeStep
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import Bake, BakeUnknown, Supervisor
from support.attempts import IDENTITY, Attempt
from support.builder import builder
from support.nats import connect, server
from support.waiting import eventually


@dataclass
class Parent:
    """Stands for the session of the bake whose step has the child."""

    bake: int = 7
    identity: Identity = IDENTITY
    rests: list[bool] = field(default_factory=list)

    def child_rests(self, paused: bool) -> None:
        self.rests.append(paused)


def inner(body: str, *, node: str = "beta", root: str = 'data-interval-ms="0"') -> RecipeStep:
    """The `<recipe>` step of an outer recipe, at index 1."""
    recipe = load_recipe(
        f'<recipe name="outer"><cli name="first" command="true"/>'
        f'<recipe name="part" node="{node}" {root}>{body}</recipe></recipe>'
    )
    step = recipe.steps[1]
    assert isinstance(step, RecipeStep)
    return step


@asynccontextmanager
async def children(bus: Bus, folder: Path, **more: Any) -> AsyncIterator[ChildRecipes]:
    """The children of a Builder `alpha` that is this process."""
    journal = Journal(folder / "journal.db")
    made = ChildRecipes(bus, journal, "alpha", **more)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        journal.close()


def open_children(folder: Path) -> list[str]:
    """What the journal has as open."""
    journal = Journal(folder / "journal.db")
    try:
        return [child.recipe_id for child in ChildBook(journal, Clock().wall).open_children()]
    finally:
        journal.close()


async def attached(operator: Supervisor, recipe_id: str) -> Bake:
    """The bake; while its node takes the recipe it is nowhere for a moment."""
    found: list[Bake] = []

    async def look() -> bool:
        with contextlib.suppress(BakeUnknown):
            found.append(await operator.attach(recipe_id, "builder-alpha"))
        return bool(found)

    await eventually(look)
    return found[0]


def attempt(made: ChildRecipes, folder: Path, step: RecipeStep, parent: Parent, **more: Any) -> Attempt:
    return Attempt(None, folder, step, children=made.of(parent), **more)  # type: ignore[arg-type]


async def test_a_childs_output_passes_as_it_was_cut_and_its_params_are_the_parents(tmp_path):
    body = (
        '<cli name="a" shell="yes" command="echo one; echo two >&amp;2"/>'
        '<cli name="b"><arg>echo</arg><arg>${param:who}</arg></cli>'
    )
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="beta"),
        connect(nats.url, name="builder-alpha") as bus,
        children(bus, tmp_path) as made,
    ):
        run = attempt(made, tmp_path, inner(body), Parent(), params={"who": "Ada"})
        result = await run.run()
    assert result.outcome is StepOutcome.OK, result
    assert result.summary == "child builder-alpha-part-1 on beta succeeded"
    assert all(isinstance(chunk, PassedChunk) for chunk in run.chunks)
    found = {(chunk.path, chunk.stream): b"" for chunk in run.chunks}
    for chunk in run.chunks:
        found[chunk.path, chunk.stream] += chunk.data
    assert found == {("1/0", "stdout"): b"one\n", ("1/0", "stderr"): b"two\n", ("1/1", "stdout"): b"Ada\n"}
    for path, stream in found:
        finals = [chunk.finalchunk for chunk in run.chunks if (chunk.path, chunk.stream) == (path, stream)]
        assert finals == [False] * (len(finals) - 1) + [True]
    assert open_children(tmp_path) == []


async def test_each_attempt_is_a_child_of_its_own_and_failure_travels_up(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="beta"),
        connect(nats.url, name="builder-alpha") as bus,
        children(bus, tmp_path) as made,
    ):
        step = inner('<cli name="a" command="true"/><cli name="b" shell="yes" command="exit 3"/>')
        first = await attempt(made, tmp_path, step, Parent()).run()
        second = await attempt(made, tmp_path, step, Parent()).run()
    assert first.outcome is second.outcome is StepOutcome.FAILED
    assert first.code is None
    assert first.summary.startswith("child builder-alpha-part-1 on beta failed at its step 1, step_failed")
    assert second.summary.startswith("child builder-alpha-part-2 on beta failed")


async def test_numbers_go_on_after_a_restart_and_leap_where_the_journal_was_lost(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="beta"),
        connect(nats.url, name="builder-alpha") as bus,
    ):
        step = inner('<cli name="a" command="true"/>')
        named = []
        for folder in (tmp_path / "one", tmp_path / "one", tmp_path / "lost"):
            folder.mkdir(exist_ok=True)
            async with children(bus, folder) as made:
                result = await attempt(made, tmp_path, step, Parent()).run()
                assert result.outcome is StepOutcome.OK, result
                named.append(int(result.summary.split()[1].rpartition("-")[2]))
    assert named[:2] == [1, 2]
    assert named[2] > 1_000_000


async def test_cancel_travels_down_and_the_child_is_ended_before_the_step(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="beta"),
        connect(nats.url, name="builder-alpha") as bus,
        children(bus, tmp_path) as made,
        Supervisor.connect(nats=nats.url, name="operator") as operator,
    ):
        step = inner('<cli name="a" shell="yes" command="echo ready; exec sleep 600"/>')
        run = attempt(made, tmp_path, step, Parent())
        result = await run.stopped(StopReason.CANCEL)
        assert result.outcome is StepOutcome.CANCELLED
        assert "has ended" in result.summary
        bake = await attached(operator, "builder-alpha-part-1")
        assert isinstance(await bake.outcome(), BakeCancelled)
    assert open_children(tmp_path) == []


async def test_pause_and_start_travel_down_and_the_parent_hears_when_the_child_rests(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="beta"),
        connect(nats.url, name="builder-alpha") as bus,
        children(bus, tmp_path) as made,
    ):
        go = tmp_path / "go"
        body = (
            f'<cli name="a" shell="yes" command="echo ready; until [ -e {go} ]; do sleep 0.02; done"/>'
            '<cli name="b" command="echo end"/>'
        )
        parent = Parent()
        followed = made.of(parent)
        run = Attempt(None, tmp_path, inner(body), children=followed)  # type: ignore[arg-type]
        running = asyncio.create_task(run.run())
        await eventually(lambda: b"ready" in run.data())
        await followed.control(Verb.PAUSE)
        go.touch()
        await eventually(lambda: parent.rests[-1:] == [True])
        assert not running.done()
        assert b"end" not in run.data()
        await followed.control(Verb.START)
        result = await running
    assert result.outcome is StepOutcome.OK
    assert parent.rests[-1] is False
    assert run.data() == b"ready\nend\n"


async def test_a_recipe_that_its_node_refuses_fails_the_step(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="beta"),
        connect(nats.url, name="builder-alpha") as bus,
        children(bus, tmp_path) as made,
    ):
        # The outer recipe's parameters are checked by the Builder that bakes.
        step = inner('<cli name="a" command="echo ${param:absent}"/>')
        result = await attempt(made, tmp_path, step, Parent(), params={"other": 1}).run()
    assert result.outcome is StepOutcome.FAILED
    assert "invalid_recipe" in result.summary
    assert open_children(tmp_path) == []


async def test_a_silent_node_fails_the_step_and_its_child_is_cancelled_when_it_is_back(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="beta") as beta,
        connect(nats.url, name="builder-alpha") as bus,
        Supervisor.connect(nats=nats.url, name="operator") as operator,
    ):
        step = inner('<cli name="a" retryable="yes" shell="yes" command="echo ready; exec sleep 600"/>')
        async with children(bus, tmp_path, unreachable_s=3.0) as made:
            run = attempt(made, tmp_path, step, Parent())
            running = asyncio.create_task(run.run())
            await eventually(lambda: b"ready" in run.data())
            await beta.kill9()
            result = await running
            assert (result.outcome, result.code) == (StepOutcome.FAILED, Code.NODE_UNREACHABLE)
            assert "silent" in result.summary
        assert open_children(tmp_path) == ["builder-alpha-part-1"]
        # Another life of this Builder, as after a crash: the errand is still there.
        async with children(bus, tmp_path):
            await beta.start()
            bake = await attached(operator, "builder-alpha-part-1")
            assert isinstance(await asyncio.wait_for(bake.outcome(), 30), BakeCancelled)
            await eventually(lambda: open_children(tmp_path) == [])


async def test_a_child_that_waits_for_its_node_is_cancelled_once_it_is_taken(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="beta") as beta,
        connect(nats.url, name="builder-alpha") as bus,
        children(bus, tmp_path, unreachable_s=1.0) as made,
        Supervisor.connect(nats=nats.url, name="operator") as operator,
    ):
        await beta.kill9()
        step = inner('<cli name="a" shell="yes" command="exec sleep 600"/>')
        result = await attempt(made, tmp_path, step, Parent()).run()
        assert (result.outcome, result.code) == (StepOutcome.FAILED, Code.NODE_UNREACHABLE)
        await beta.start()
        bake = await attached(operator, "builder-alpha-part-1")
        assert isinstance(await asyncio.wait_for(bake.outcome(), 40), BakeCancelled)
        await eventually(lambda: open_children(tmp_path) == [])


async def test_a_node_that_never_was_is_waited_for_and_then_unreachable(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="beta"),
        connect(nats.url, name="builder-alpha") as bus,
        children(bus, tmp_path, unreachable_s=1.0) as made,
    ):
        run = attempt(made, tmp_path, inner('<cli name="a" command="true"/>', node="gamma"), Parent())
        result = await run.run()
    assert (result.outcome, result.code) == (StepOutcome.FAILED, Code.NODE_UNREACHABLE)
    assert "waiting for node gamma" in run.said
    assert open_children(tmp_path) == []


async def test_a_child_without_heartbeat_is_not_taken_for_dead(tmp_path):
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="beta"),
        connect(nats.url, name="builder-alpha") as bus,
        children(bus, tmp_path, unreachable_s=1.0) as made,
    ):
        root = 'status-interval-ms="0" data-interval-ms="0"'
        step = inner('<cli name="a" shell="yes" command="sleep 3; echo end"/>', root=root)
        run = attempt(made, tmp_path, step, Parent())
        result = await run.run()
    assert result.outcome is StepOutcome.OK, result
    assert run.data() == b"end\n"


async def test_two_builders_bake_one_recipe(tmp_path):
    xml = (
        '<recipe name="outer" data-interval-ms="0"><cli name="a" command="echo here"/>'
        '<recipe name="part" node="beta"><cli name="b" command="echo ${node}"/>'
        '<recipe name="back" node="alpha"><cli name="c" command="echo ${node} ${recipeid}"/></recipe>'
        "</recipe>"
        '<cli name="d" command="echo end"/></recipe>'
    )
    async with (
        server(tmp_path) as nats,
        builder(tmp_path, nats.url, node_id="alpha"),
        builder(tmp_path, nats.url, node_id="beta"),
        Supervisor.connect(nats=nats.url, name="boss") as boss,
    ):
        bake = await boss.bake(xml, node="alpha")
        chunks = [chunk async for chunk in bake.data()]
        outcome = await bake.outcome()
    assert isinstance(outcome, BakeSuccess)
    assert [(chunk.stepindex, chunk.path, chunk.data) for chunk in chunks if chunk.data] == [
        (0, None, b"here\n"),
        (1, "1/0", b"beta\n"),
        (1, "1/1/0", b"alpha builder-beta-back-1\n"),
        (2, None, b"end\n"),
    ]
