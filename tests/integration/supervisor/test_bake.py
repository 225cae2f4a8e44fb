"""Baking over a real server: ids, Results, the two streams, the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bakemesh.bus.errors import BusUnreachable
from bakemesh.protocol.builder.messages import BakeCancelled, BakeFailed, BakeSuccess, RecipeMessage
from bakemesh.protocol.errors import NameRefused
from bakemesh.supervisor import (
    Closed,
    MessageTooLarge,
    NodeUnknown,
    NodeUnreachable,
    NoNodeAvailable,
    RecipeRejected,
    ResultTimeout,
    Supervisor,
)
from support.nats import connect, server
from support.scripted_builder import ScriptedBake, scripted_builder
from support.supervision import RECIPE, UNNAMED, idle, mesh, quick
from support.waiting import eventually


async def test_a_bake_from_recipe_to_success(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta", params={"K": "v"})
        assert bake.result is not None
        assert bake.result.accepted
        assert not bake.waiting
        assert bake.identity.fields() == {
            "supervisor": "nightly",
            "recipe": "index",
            "recipe_id": "nightly-index-1",
            "node": "beta",
            "node_id": "b1",
        }
        statuses = [status async for status in bake.status()]
        assert [status.serial for status in statuses] == [1, 2, 3]
        assert [status.kind for status in statuses] == ["start", "step", "outcome"]
        assert [chunk.data async for chunk in bake.data()] == [b"one ", b"two"]
        outcome = await bake.outcome()
        assert isinstance(outcome, BakeSuccess)
        sent = here.builder.bakes[bake.identity.key].recipe
        assert (sent.recipe_spec, sent.params) == (RECIPE, {"K": "v"})


async def test_the_recipes_name_is_the_roots_else_the_supervisors(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        assert (await here.supervisor.bake(RECIPE, node="b1")).recipe_id == "nightly-index-1"
        assert (await here.supervisor.bake(UNNAMED, node="b1")).recipe_id == "nightly-nightly-2"
        with pytest.raises(NameRefused, match="' '"):
            await here.supervisor.bake('<recipe name="my index"/>', node="b1")


async def test_many_iterators_on_one_bake_each_see_everything(tmp_path: Path) -> None:
    begin = asyncio.Event()

    async def script(bake: ScriptedBake) -> None:
        await begin.wait()
        await quick(bake)

    async with mesh(tmp_path, script) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")

        async def serials() -> list[int]:
            return [status.serial async for status in bake.status()]

        async def output() -> bytes:
            return b"".join([chunk.data async for chunk in bake.data()])

        several = [asyncio.ensure_future(one()) for one in (serials, output, serials, output)]
        ending = asyncio.ensure_future(bake.outcome())
        begin.set()
        assert [await one for one in several] == [[1, 2, 3], b"one two", [1, 2, 3], b"one two"]
        assert (await ending).final


async def test_many_bakes_at_once_keep_apart(tmp_path: Path) -> None:
    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        await bake.chunk(bake.identity.recipe_id.encode())
        await bake.succeed()

    async with mesh(tmp_path, script) as here:

        async def one() -> str:
            bake = await here.supervisor.bake(RECIPE, node="beta")
            output = b"".join([chunk.data async for chunk in bake.data()])
            assert output == bake.recipe_id.encode()
            return bake.recipe_id

        ids = await asyncio.gather(*(one() for _ in range(100)))
        assert len(set(ids)) == 100


async def test_a_refused_recipe_raises_with_every_problem(tmp_path: Path) -> None:
    problems = [{"line": 1, "element": "cli", "attribute": "retyable", "message": "did you mean retryable?"}]
    async with mesh(tmp_path, quick) as here:
        here.builder.refuse = lambda _recipe: {"code": "invalid_recipe", "problems": problems}
        with pytest.raises(RecipeRejected, match="did you mean retryable") as refused:
            await here.supervisor.bake(RECIPE, node="beta")
        assert refused.value.problems == tuple(problems)
        assert refused.value.code == "invalid_recipe"


async def test_a_rate_limited_recipe_is_sent_again_under_its_id(tmp_path: Path) -> None:
    refused: list[RecipeMessage] = []

    def once(recipe: RecipeMessage) -> dict[str, Any] | None:
        if refused:
            return None
        refused.append(recipe)
        return {"code": "rate_limited", "retryms": 20}

    async with mesh(tmp_path, quick) as here:
        here.builder.refuse = once
        bake = await here.supervisor.bake(RECIPE, node="beta")
        assert bake.recipe_id == refused[0].recipe_id == "nightly-index-1"
        ids = [envelope_id for _, envelope_id in here.builder.seen]
        assert len(set(ids)) == 2, "the same envelope would get the same Result"
        assert isinstance(await bake.outcome(), BakeSuccess)


async def test_a_node_that_is_down_leaves_the_bake_waiting_and_takes_it_later(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, identity="builder-b1", node_id="b1") as bus:
        async with scripted_builder(bus, "b1", "beta", quick):
            pass
        async with Supervisor.connect(nats.url, "nightly") as supervisor:
            bake = await supervisor.bake(RECIPE, node="beta", result_timeout_s=0.1)
            assert bake.waiting
            with pytest.raises(ResultTimeout, match="node b1"):
                await bake.accepted(timeout=0.05)
            with pytest.raises(NodeUnreachable, match="no Builder on node b1"):
                await bake.cancel()
            other = await supervisor.attach(bake.recipe_id)
            assert other.waiting
            assert other.identity.key == bake.identity.key
            ending = asyncio.ensure_future(bake.outcome())
            async with scripted_builder(bus, "b1", "beta", quick):
                result = await bake.accepted(timeout=20)
                assert result is not None
                assert result.accepted
                assert not bake.waiting
                assert isinstance(await ending, BakeSuccess)


async def test_a_waiting_recipe_that_is_refused_in_the_end_ends_who_iterates(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url, identity="builder-b1", node_id="b1") as bus:
        async with scripted_builder(bus, "b1", "beta", quick):
            pass
        async with Supervisor.connect(nats.url, "nightly") as supervisor:
            bake = await supervisor.bake(RECIPE, node="beta", result_timeout_s=0.1)
            reading = asyncio.ensure_future(anext(bake.status()))
            async with scripted_builder(bus, "b1", "beta", quick) as builder:
                builder.refuse = lambda _recipe: {"code": "draining"}
                with pytest.raises(RecipeRejected, match="draining"):
                    await reading
                with pytest.raises(RecipeRejected):
                    await bake.outcome()
                with pytest.raises(RecipeRejected):
                    await bake.accepted()


async def test_a_lost_result_is_made_up_for_by_status(tmp_path: Path) -> None:
    async with mesh(tmp_path, idle) as here:
        here.builder.deaf = True
        bake = await here.supervisor.bake(RECIPE, node="beta", result_timeout_s=0.2)
        assert await bake.accepted(timeout=20) is None
        assert not bake.waiting
        assert (await bake.cancel()).accepted
        assert isinstance(await bake.outcome(), BakeCancelled)


async def test_sending_a_prepared_recipe_twice_bakes_it_once(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        prepared = await here.supervisor.prepare(RECIPE, node="beta", parent="a-b-1", parent_supervisor="a")
        first = await here.supervisor.send(prepared)
        await first.outcome()
        # Behind the server's window of duplicates the Builder itself sees it a second time.
        again = prepared.sealed
        await here.supervisor.bus.publish_stored(
            prepared.subject, type(again)(again.payload, "another message id")
        )
        await eventually(lambda: len(here.builder.seen) == 2)
        assert len(here.builder.bakes) == 1
        recipe = here.builder.bakes[first.identity.key].recipe
        assert (recipe.parent, recipe.parent_supervisor) == ("a-b-1", "a")


async def test_expiry_is_put_on_the_recipe(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta", expires_s=60)
        sent = here.builder.bakes[bake.identity.key].recipe
        assert sent.expires is not None
        assert sent.expires > 1_600_000_000_000_000


async def test_what_is_too_large_is_refused_with_both_sizes_and_no_id_is_spent(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        large = f'<recipe name="index"><!--{"x" * 1024**2}--></recipe>'
        with pytest.raises(MessageTooLarge, match="1,048,576"):
            await here.supervisor.bake(large, node="beta")
        params = {"K": "x" * here.supervisor.bus.max_payload}
        with pytest.raises(MessageTooLarge, match=f"{here.supervisor.bus.max_payload:,}"):
            await here.supervisor.bake(RECIPE, node="beta", params=params)
        assert here.builder.seen == []


async def test_nodes_by_name_id_any_and_unknown(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        supervisor = here.supervisor
        with pytest.raises(NodeUnknown, match="beta=b1"):
            await supervisor.bake(RECIPE, node="gamma")
        unseen = await supervisor.bake(RECIPE, node_id="g1", result_timeout_s=0.05)
        assert unseen.waiting
        assert unseen.node_id == "g1"
        await supervisor.directory.nodes()
        async with (
            connect(here.nats.url, identity="builder-c1", node_id="c1") as bus,
            scripted_builder(bus, "c1", "delta", quick) as other,
        ):
            await other.report(load=9.0)
            assert [one.name for one in await supervisor.nodes()] == ["beta", "delta"]
            assert (await supervisor.bake(RECIPE)).node == "beta"
            await here.builder.report(draining=True)
            await supervisor.nodes()
            assert (await supervisor.bake(RECIPE, node="any")).node == "delta"
            await other.report(draining=True)
            await supervisor.nodes()
            with pytest.raises(NoNodeAvailable, match="delta=c1 drained"):
                await supervisor.bake(RECIPE)


async def test_any_goes_on_to_the_next_node_where_one_has_begun_to_drain(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path, quick) as here,
        connect(here.nats.url, identity="builder-c1", node_id="c1") as bus,
        scripted_builder(bus, "c1", "delta", quick) as other,
    ):
        await other.report(load=9.0)
        here.builder.refuse = lambda _recipe: {"code": "draining"}
        bake = await here.supervisor.bake(RECIPE)
        assert bake.node == "delta"
        assert isinstance(await bake.outcome(), BakeSuccess)


async def test_ten_thousand_chunks_byte_exact(tmp_path: Path) -> None:
    pieces = [bytes([index % 256]) * (index % 97) + index.to_bytes(4, "big") for index in range(10_000)]

    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        await bake.chunks(pieces)
        await bake.succeed()

    async with mesh(tmp_path, script) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        read = [chunk async for chunk in bake.data()]
        assert [chunk.data for chunk in read] == pieces
        assert [chunk.seq for chunk in read] == list(range(1, 10_001))


async def test_a_failed_bake_is_an_outcome_not_an_exception(tmp_path: Path) -> None:
    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        await bake.fail("timeout")

    async with mesh(tmp_path, script) as here:
        outcome = await (await here.supervisor.bake(RECIPE, node="beta")).outcome()
        assert isinstance(outcome, BakeFailed)
        assert (outcome.code, outcome.stepindex) == ("timeout", 0)


async def test_closing_ends_iterators_and_leaves_nothing_running(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        connect(nats.url, identity="builder-b1", node_id="b1") as bus,
        scripted_builder(bus, "b1", "beta", idle) as builder,
    ):
        before = asyncio.all_tasks()
        supervisor = await Supervisor.connect(nats.url, "nightly").open()
        bake = await supervisor.bake(RECIPE, node="beta")
        waiting = await supervisor.bake(RECIPE, node_id="nowhere", result_timeout_s=0.05)

        async def last_status() -> None:
            async for _ in bake.status():
                pass

        async def all_data() -> None:
            async for _ in bake.data():
                pass

        ended = [
            asyncio.ensure_future(one)
            for one in (last_status(), all_data(), bake.outcome(), waiting.outcome())
        ]
        await bake.accepted()
        await supervisor.close()
        await supervisor.close()
        results = await asyncio.gather(*ended, return_exceptions=True)
        assert [type(one) for one in results] == [Closed] * 4
        with pytest.raises(Closed):
            await supervisor.bake(RECIPE, node="beta")
        others = before.union(builder.tasks)
        await eventually(lambda: asyncio.all_tasks() <= others, what="no task left")


async def test_breaking_out_of_iterators_and_closing_one_bake(tmp_path: Path) -> None:
    async with mesh(tmp_path, idle) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        async for _ in bake.status():
            break
        reading = asyncio.ensure_future(anext(bake.data()))
        await asyncio.sleep(0)
        await bake.close()
        with pytest.raises(Closed, match="goes on"):
            await reading
        again = await here.supervisor.attach(bake.recipe_id)
        assert (await again.cancel()).accepted
        assert isinstance(await again.outcome(), BakeCancelled)


async def test_an_unreachable_bus_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(BusUnreachable, match=r"127\.0\.0\.1:9"):
        async with Supervisor.connect("nats://127.0.0.1:9", "nightly", connect_timeout_s=0.5):
            pass
    assert asyncio.all_tasks() == before
    with pytest.raises(NameRefused, match="Supervisor"):
        Supervisor.connect("nats://127.0.0.1:9", "night.ly")
