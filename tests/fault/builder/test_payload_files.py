"""Large output waits in files beside the journal: kill -9 loses none of it, a power cut ends it cleanly."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bakemesh.protocol.builder.messages import BakeFailed, BakeSuccess
from bakemesh.supervisor import Bake
from support.builder import RunningBuilder
from support.mesh import Mesh, mesh
from support.processes import alive
from support.waiting import eventually

CHUNK = 64 * 2**10
SIZE = 40 * 100_000
LINES = b"".join(b"%099d\n" % number for number in range(SIZE // 100))


@dataclass
class Waiting:
    """A bake whose step has filled the outbox while the bus is away."""

    net: Mesh
    bake: Bake

    @property
    def node(self) -> RunningBuilder:
        return self.net.node

    def files(self) -> list[Path]:
        folder = self.node.state / "journal.payloads"
        return sorted(folder.iterdir()) if folder.exists() else []

    async def data(self) -> list[bytes]:
        return [chunk.data async for chunk in self.bake.data()]


@asynccontextmanager
async def waiting(folder: Path) -> AsyncIterator[Waiting]:
    gate, program = folder / "gate", folder / "writer.py"
    program.write_text(
        "import os, sys, time\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        f"for i in range({SIZE // 100}): sys.stdout.write(f'{{i:099d}}\\n')\n"
    )
    xml = (
        f'<recipe name="held" max-data-bytes="{CHUNK}" data-interval-ms="1000">'
        f"<cli><arg>{sys.executable}</arg><arg>{program}</arg></cli></recipe>"
    )
    async with (
        mesh(folder, "--outbox-max-bytes", "2MiB") as net,
        net.supervisor("boss") as boss,
    ):
        bake = await boss.bake(xml, node="alpha")
        async for status in bake.status():
            if status.kind == "step":
                break
        await net.nats.kill()
        gate.touch()
        here = Waiting(net, bake)
        await eventually(
            lambda: sum(path.stat().st_size for path in here.files()) >= 2 * 2**20 - CHUNK,
            what="an outbox that is full",
        )
        yield here


async def test_kill_9_loses_nothing_that_waits_in_a_file(tmp_path: Path) -> None:
    async with waiting(tmp_path) as here:
        await here.node.kill9()
        await eventually(lambda: not alive(str(tmp_path / "writer.py")), within=3)
        await here.net.nats.start()
        await here.node.start()
        outcome = await asyncio.wait_for(here.bake.outcome(), 30)
        assert isinstance(outcome, BakeFailed)
        assert outcome.code == "builder_restarted"
        found = await here.data()
        assert outcome.lastseq == len(found)
        assert len(b"".join(found)) >= 2**20
        assert LINES.startswith(b"".join(found))


async def test_a_power_cut_ends_the_output_before_what_it_lost(tmp_path: Path) -> None:
    async with waiting(tmp_path) as here:
        await here.node.kill9()
        last = here.files()[-1]
        os.truncate(
            last, last.stat().st_size - 5 * CHUNK
        )  # as after a power cut: the end was not on the disk
        await here.net.nats.start()
        await here.node.start()
        outcome = await asyncio.wait_for(here.bake.outcome(), 30)
        assert isinstance(outcome, BakeFailed)
        found = await here.data()
        assert outcome.lastseq == len(found)
        assert 2**20 <= len(b"".join(found)) < 2 * 2**20 - 4 * CHUNK
        assert LINES.startswith(b"".join(found))
        assert "were lost with a power cut" in here.node.log.read_text()


async def test_the_files_go_when_their_output_is_stored(tmp_path: Path) -> None:
    async with waiting(tmp_path) as here:
        await here.net.nats.start()
        assert isinstance(await asyncio.wait_for(here.bake.outcome(), 60), BakeSuccess)
        assert b"".join(await here.data()) == LINES
        await eventually(lambda: sum(path.stat().st_size for path in here.files()) <= 2**20)
