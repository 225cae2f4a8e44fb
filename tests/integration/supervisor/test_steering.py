"""Controls, pushes and late attach over a real server."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from unittest import mock

import pytest

from bakemesh.bus.errors import AccessDenied
from bakemesh.protocol.builder.codes import Verb
from bakemesh.protocol.builder.messages import BakeCancelled, BakeSuccess
from bakemesh.supervisor import AmbiguousRecipeID, BakeUnknown, MessageTooLarge, ResultTimeout, Supervisor
from support.nats import connect, guarded
from support.scripted_builder import ScriptedBake, scripted_builder
from support.supervision import RECIPE, idle, mesh, quick


async def test_every_control_is_answered_and_carries_a_rising_ctrlseq(tmp_path: Path) -> None:
    async with mesh(tmp_path, idle) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        before = time.time_ns() // 1_000_000
        results = [
            await bake.pause(),
            await bake.start(),
            await bake.skip_step(),
            await bake.retry_step(),
            await bake.control(Verb.TERMINATE),
            await bake.cancel(),
        ]
        assert [result.verb for result in results] == [
            "Pause",
            "Start",
            "SkipStep",
            "RetryStep",
            "Terminate",
            "Cancel",
        ]
        assert all(result.accepted for result in results)
        numbers = [result.ctrlseq for result in results]
        assert numbers == sorted(set(numbers))
        assert numbers[0] is not None
        assert numbers[0] >= before
        statuses = [status async for status in bake.status()]
        ack = next(status for status in statuses if status.kind == "ack")
        assert (ack.verb, ack.issuedby, ack.ctrlseq) == ("Cancel", "nightly", numbers[-1])
        assert isinstance(await bake.outcome(), BakeCancelled)


async def test_two_handles_of_one_bake_share_its_sequence(tmp_path: Path) -> None:
    async with mesh(tmp_path, idle) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        other = await here.supervisor.attach(bake.recipe_id)
        results = await asyncio.gather(*(one.pause() for one in (bake, other) * 20))
        assert all(result.accepted for result in results)


async def test_a_clock_that_was_set_back_is_made_up_for_by_the_acks(tmp_path: Path) -> None:
    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        while True:
            verb, control = await bake.controls.get()
            await bake.status(
                "ack", verb=verb, ctrlseq=control.ctrlseq, issuedby=control.issuedby, outcome="paused"
            )

    async with mesh(tmp_path, script) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        statuses = bake.status()
        assert (await bake.pause()).accepted
        while (await anext(statuses)).kind != "ack":
            pass
        async with Supervisor.connect(here.nats.url, "nightly") as restarted:
            other = await restarted.attach(bake.recipe_id)
            with mock.patch("bakemesh.supervisor.bake.time.time_ns", return_value=10**15):
                assert (await other.pause()).accepted


async def test_a_refused_control_is_a_result(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        here.builder.bakes.clear()
        result = await bake.pause()
        assert (result.accepted, result.code) == (False, "unknown_recipe")


@pytest.mark.parametrize("length", [0, 5, 3 * 1024**2 + 7])
async def test_a_push_answers_a_request_whole(tmp_path: Path, length: int) -> None:
    data = bytes(index % 251 for index in range(length))
    got: list[bytes] = []

    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        got.append(await bake.ask("Words"))
        await bake.succeed()

    async with mesh(tmp_path, script) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        async for status in bake.status():
            if status.request:
                result = await bake.push(status.request, data)
                assert result.accepted
                assert result.verb == "BakeData"
        assert got == [data]


async def test_a_refused_push_stops_and_too_much_is_not_sent(tmp_path: Path) -> None:
    async with mesh(tmp_path, idle) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        with pytest.raises(MessageTooLarge, match="64"):
            await bake.push("Words", bytes(64 * 1024**2 + 1))
        here.builder.bakes.clear()
        result = await bake.push("Words", b"x" * (2 * 1024**2))
        assert (result.accepted, result.code) == (False, "unknown_recipe")


async def test_a_push_to_a_node_that_is_down_is_kept_for_it(tmp_path: Path) -> None:
    got: list[bytes] = []

    async def script(bake: ScriptedBake) -> None:
        got.append(await bake.expect("Words"))
        await bake.succeed()

    async with mesh(tmp_path, quick) as here:
        supervisor = here.supervisor
        bake = await supervisor.bake(RECIPE, node_id="g1", result_timeout_s=0.05)
        data = b"y" * (1024**2 + 1)
        with pytest.raises(ResultTimeout, match=r"part 1 of the push 'Words'.*g1"):
            await bake.push("Words", data, timeout=0.05)
        async with (
            connect(here.nats.url, identity="builder-g1", node_id="g1") as bus,
            scripted_builder(bus, "g1", "gamma", script),
        ):
            assert isinstance(await bake.outcome(), BakeSuccess)
        assert got == [data]


async def test_late_attach_replays_everything_from_another_process_and_the_same(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        await bake.outcome()
        async with Supervisor.connect(here.nats.url, "nightly") as later:
            other = await later.attach(bake.recipe_id)
            assert other.identity == bake.identity
            assert other.terminal is not None
            assert [status.serial async for status in other.status()] == [1, 2, 3]
            assert b"".join([chunk.data async for chunk in other.data()]) == b"one two"
            assert isinstance(await other.outcome(), BakeSuccess)
            with pytest.raises(BakeUnknown, match="nightly-index-99"):
                await later.attach("nightly-index-99")


async def test_attach_in_mid_bake_goes_on_live(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        await bake.chunk(b"early ")
        await go.wait()
        await bake.chunk(b"late")
        await bake.succeed()

    async with mesh(tmp_path, script) as here:
        bake = await here.supervisor.bake(RECIPE, node="beta")
        data = bake.data()
        assert (await anext(data)).data == b"early "
        async with Supervisor.connect(here.nats.url, "nightly") as later:
            other = await later.attach(bake.recipe_id, node="beta")
            statuses, chunks = other.status(), other.data()
            assert (await anext(statuses)).serial == 1
            assert (await anext(chunks)).data == b"early "
            go.set()
            assert [status.serial async for status in statuses] == [2]
            assert [chunk.data async for chunk in chunks] == [b"late"]


async def test_an_ambiguous_recipe_id_lists_its_candidates(tmp_path: Path) -> None:
    async with mesh(tmp_path, quick, name="a") as here:
        mine = await here.supervisor.bake('<recipe name="b-c"/>', node="beta")
        async with Supervisor.connect(here.nats.url, "a-b") as other:
            theirs = await other.bake('<recipe name="c"/>', node="beta")
            assert mine.recipe_id == theirs.recipe_id == "a-b-c-1"
            await mine.outcome()
            await theirs.outcome()
            with pytest.raises(AmbiguousRecipeID) as ambiguous:
                await other.attach("a-b-c-1")
            assert ambiguous.value.candidates == (("a", "b1"), ("a-b", "b1"))
            found = await other.attach("a-b-c-1", supervisor="a")
            assert found.identity == mine.identity


async def test_with_permissions_a_supervisor_does_all_of_this_and_no_more(tmp_path: Path) -> None:
    async def script(bake: ScriptedBake) -> None:
        await bake.start()
        await bake.chunk(await bake.ask("Words"))
        await idle(bake)

    async with (
        guarded(tmp_path) as here,
        here.connect("builder-alpha") as builder_bus,
        scripted_builder(builder_bus, "alpha", "alpha", script),
        here.connect("nightly") as bus,
        Supervisor(bus, "nightly") as supervisor,
    ):
        assert [node.name for node in await supervisor.nodes()] == ["alpha"]
        bake = await supervisor.bake(RECIPE)
        async for status in bake.status():
            if status.request:
                break
        assert (await bake.push("Words", b"canary")).accepted
        assert (await anext(bake.data())).data == b"canary"
        attached = await supervisor.attach(bake.recipe_id)
        assert (await anext(attached.status())).serial == 1
        async with here.connect("other") as other_bus, Supervisor(other_bus, "other") as other:
            with pytest.raises(AccessDenied):
                await other.attach(bake.recipe_id)
            with pytest.raises(AccessDenied):
                async with Supervisor(other_bus, "nightly"):
                    pass
        async with here.connect("ops") as ops_bus, Supervisor(ops_bus, "ops") as ops:
            seen = await ops.attach(bake.recipe_id)
            assert (await seen.cancel()).accepted
            assert isinstance(await seen.outcome(), BakeCancelled)
        assert isinstance(await bake.outcome(), BakeCancelled)
        assert [chunk.data async for chunk in bake.data()] == [b"canary"]
