"""The module as a component that a real Builder runs from a PsySpec, with and without keys."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bakemesh.bus.errors import AccessDenied
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.protocol.inference.answers import Ingested, Vectors
from bakemesh.protocol.inference.requests import Embed, Health, Ingest
from bakemesh.protocol.psyspec import bringup, groups, load_psyspec
from support.mesh import Mesh, mesh
from support.modules import Board, board
from support.processes import gone
from support.synapse import Caller, calling, fake_model, statuses
from support.waiting import eventually


def spec(*parameters: tuple[str, object], attributes: str = "") -> str:
    """A PsySpec with one synapse module."""
    kinds = {int: "Integer", str: "String"}
    said = "".join(
        f'<parameter name="{name}" type="{kinds.get(type(value), "String")}" value="{value}"/>'
        for name, value in parameters
    )
    return f"""<psySpec name="p"><module name="synapse" {attributes}>
      <crank service="synapse"/>{said}
    </module></psySpec>"""


async def bring_up(net: Mesh, text: str) -> object:
    """Gives what became of the bake that starts it."""
    async with net.supervisor("boss") as boss:
        (group,) = groups(load_psyspec(text), "alpha", "alpha")
        bake = await boss.bake(bringup(group), node_id="alpha")
        return await bake.outcome()


@asynccontextmanager
async def caller_of(net: Mesh, party: str) -> AsyncIterator[Caller]:
    """A caller with that party's key, where parties have keys."""
    async with calling(net.url, name=party, credentials=net.credentials(party), identity=party) as caller:
        yield caller


def given(folder: Path) -> tuple[tuple[str, object], ...]:
    """Parameters of a module with one fake model."""
    path = fake_model(folder, "mini", kind="embed", dims=16)
    return (("engine", "fake"), ("workers", 1), ("model.mini", path), ("model.mini.slow_ms", 1))


async def row_of(seen: Board) -> dict[str, object]:
    return await seen.until("synapse", "ready", within=60)


async def test_a_psyspec_brings_it_up_and_a_kill_brings_it_back(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path, guard=False) as net,
        net.connect("eyes") as bus,
        board(bus) as seen,
        statuses(bus) as heard,
        caller_of(net, "boss") as caller,
    ):
        outcome = await bring_up(net, spec(*given(tmp_path)))
        assert isinstance(outcome, BakeSuccess), outcome
        row = await row_of(seen)
        asked = await caller.ask("Embed", "mini", Embed(texts=["x"]))
        assert isinstance(asked.last, Vectors)
        assert asked.last.dims == 16
        assert (await caller.ask("Health", "-", Health())).last.state == "ok"
        run, pid = heard[-1].run, int(str(row["pid"]))
        os.kill(pid, signal.SIGKILL)
        await seen.until("synapse", lambda now: now["state"] == "ready" and now["pid"] != pid, within=60)
        assert (await caller.ask("Embed", "mini", Embed(texts=["x"]))).last.n == 1
        assert heard[-1].run != run
        again = int(str((await row_of(seen))["pid"]))
        assert await net.node.stop() == 0  # its components end with it
        await eventually(lambda: gone(again), what="the module's end")
        assert heard[-1].state == "draining"


async def test_a_parameter_that_is_none_is_refused_with_the_one_that_is_meant(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path, guard=False) as net,
        net.connect("eyes") as bus,
        board(bus) as seen,
    ):
        text = spec(*given(tmp_path), ("worker", 2), attributes='restart="never"')
        bringing = asyncio.create_task(bring_up(net, text))
        row = await seen.until("synapse", lambda now: "workers" in str(now.get("reason")), within=60)
        assert "'worker'" in str(row["reason"])
        bringing.cancel()
        await asyncio.gather(bringing, return_exceptions=True)


async def test_a_model_that_is_not_there_is_said(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path, guard=False) as net,
        net.connect("eyes") as bus,
        board(bus) as seen,
    ):
        text = spec(("engine", "fake"), ("model.mini", "/nowhere/m.gguf"), attributes='restart="never"')
        bringing = asyncio.create_task(bring_up(net, text))
        row = await seen.until("synapse", lambda now: "/nowhere/m.gguf" in str(now.get("reason")), within=60)
        assert "model.mini" in str(row["reason"])
        bringing.cancel()
        await asyncio.gather(bringing, return_exceptions=True)


async def test_with_keys_everybody_asks_and_operators_alone_ingest(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    async with mesh(tmp_path, "--keys-dir", str(keys), nodes=(), inference={"synapse": "alpha"}) as net:
        file = keys / "synapse.nk"
        file.touch(mode=0o600)
        file.write_text(net.keys["synapse"].seed)
        async with (
            net.builder("alpha", "--keys-dir", str(keys)),
            net.connect("ops") as bus,
            board(bus) as seen,
            caller_of(net, "boss") as boss,
            caller_of(net, "ops") as operator,
        ):
            outcome = await bring_up(net, spec(*given(tmp_path)))
            assert isinstance(outcome, BakeSuccess), outcome
            await row_of(seen)
            for caller, node in ((boss, "alpha"), (operator, "alpha"), (boss, "any")):
                assert (await caller.ask("Embed", "mini", Embed(texts=["x"]), node=node)).last.n == 1
            message = Ingest(path=str(fake_model(tmp_path, "more", kind="embed")))
            refused = await boss.send("Ingest", "more", message)
            async with asyncio.timeout(20):
                await refused.ended.wait()
            assert "may not publish" in str(refused.failed[0])
            assert isinstance((await operator.ask("Ingest", "more", message)).last, Ingested)
            assert (await boss.ask("Embed", "more", Embed(texts=["x"]))).last.n == 1


async def test_a_key_of_another_kind_hears_nothing_of_what_a_module_is_asked(tmp_path: Path) -> None:
    async with mesh(tmp_path, nodes=(), inference={"synapse": "alpha"}) as net, net.connect("boss") as bus:
        with pytest.raises(AccessDenied):
            await bus.subscribe(f"psyclone.alpha.*.*.{Embed.TYPE}", lambda delivery: None)
