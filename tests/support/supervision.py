"""A server, a scripted Builder of node `beta` (id b1) and a Supervisor, ready to bake.

async with mesh(tmp_path, script) as here:
    bake = await here.supervisor.bake(RECIPE, node="beta")
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakemesh.bus import Bus
from bakemesh.bus.server import EmbeddedServer
from bakemesh.supervisor import Supervisor
from support.nats import connect, server
from support.scripted_builder import Script, ScriptedBake, ScriptedBuilder, scripted_builder

RECIPE = '<recipe name="index"><cli name="list" command="ls"/></recipe>'
UNNAMED = '<recipe><cli name="list" command="ls"/></recipe>'


@dataclass
class Mesh:
    """What a test works with."""

    nats: EmbeddedServer
    builder_bus: Bus
    builder: ScriptedBuilder
    supervisor: Supervisor


@asynccontextmanager
async def mesh(
    folder: Path,
    script: Script,
    *,
    name: str = "nightly",
    node_id: str = "b1",
    node: str = "beta",
    **more: Any,
) -> AsyncIterator[Mesh]:
    """All of it on a server of its own; `more` are settings of Supervisor.connect."""
    async with (
        server(folder) as nats,
        connect(nats.url, name="builder", node_id=node_id, identity=f"builder-{node_id}") as bus,
        scripted_builder(bus, node_id, node, script) as builder,
        Supervisor.connect(nats.url, name, **more) as supervisor,
    ):
        yield Mesh(nats, bus, builder, supervisor)


async def quick(bake: ScriptedBake) -> None:
    """A bake that begins, writes two chunks and succeeds."""
    await bake.start()
    await bake.chunk(b"one ")
    await bake.status("step", stepindex=0, step="list", attempt=1, outcome="ok", exitcode=0, pct=100)
    await bake.chunk(b"two", finalchunk=True)
    await bake.succeed()


async def idle(bake: ScriptedBake) -> None:
    """A bake that begins and then waits for a Cancel."""
    await bake.start()
    while True:
        verb, control = await bake.controls.get()
        if verb == "Cancel":
            await bake.status(
                "ack",
                verb=verb,
                ctrlseq=control.ctrlseq,
                issuedby=control.issuedby,
                outcome="cancelled",
            )
            await bake.cancelled()
            return
