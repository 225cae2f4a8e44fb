"""The bus away, the stores full, the disk full, the leaf cut off: what is said waits, and nothing is lost."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from bakemesh.bus.purge import purge_subject
from bakemesh.bus.sealing import Sealed
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeCancelled, BakeFailed, BakeSuccess
from bakemesh.protocol.subjects import build
from bakemesh.supervisor import Bake, Supervisor
from support.builder import builder
from support.disks import fill_disk, small_disk
from support.mesh import mesh
from support.nats import hub_and_leaf
from support.processes import alive
from support.waiting import eventually

LINE = b"z" * 99 + b"\n"


def writer(folder: Path, lines: int, *, pause: float = 0.0, name: str = "writer.py") -> str:
    """A step that writes numbered lines of 107 bytes, in bursts of 100 with a pause after each."""
    path = folder / name
    path.write_text(
        "import sys, time\n"
        f"for i in range({lines}):\n"
        "    sys.stdout.write(f'{i:07d} ' + 'z' * 98 + '\\n')\n"
        f"    if i % 100 == 99:\n        sys.stdout.flush(); time.sleep({pause})\n"
    )
    return f"<arg>{sys.executable}</arg><arg>{path}</arg>"


def expected(lines: int) -> bytes:
    return b"".join(b"%07d " % i + b"z" * 98 + b"\n" for i in range(lines))


def wchan(pid: int) -> str:
    """Where in the kernel the process sleeps."""
    try:
        return Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return ""


async def output_of(bake: Bake) -> bytes:
    return b"".join([chunk.data async for chunk in bake.data()])


async def test_a_server_killed_in_the_middle_of_a_chatty_step_loses_nothing(tmp_path: Path) -> None:
    lines = 40_000
    xml = (
        '<recipe name="chat" status-interval-ms="200" data-interval-ms="50" max-data-bytes="16384">'
        f"<cli>{writer(tmp_path, lines, pause=0.01)}</cli></recipe>"
    )
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
    ):
        bake = await boss.bake(xml, node="alpha")
        reading = asyncio.create_task(output_of(bake))
        async for chunk in bake.data():
            if chunk.seq == 5:
                break
        for _ in range(2):
            await net.nats.kill()
            await asyncio.sleep(0)
            await net.nats.start()
            await eventually(lambda: boss.bus.connected, within=10)
        assert await asyncio.wait_for(reading, 60) == expected(lines)
        assert isinstance(await bake.outcome(), BakeSuccess)
        statuses = [status async for status in bake.status()]
        assert [s.serial for s in statuses] == list(range(1, len(statuses) + 1))


async def test_a_bake_goes_on_while_the_bus_is_away(tmp_path: Path) -> None:
    """The step ends during the outage; all that it wrote, and its end, are told afterwards."""
    done = tmp_path / "done"
    lines = 2_000
    path = writer(tmp_path, lines, pause=0.02)
    xml = f'<recipe name="away"><cli>{path}</cli><cli command="touch {done}"/></recipe>'
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
    ):
        bake = await boss.bake(xml, node="alpha")
        async for _ in bake.status():
            break
        await net.nats.kill()
        await eventually(done.exists, what="the step during the outage")
        await net.nats.start()
        assert isinstance(await asyncio.wait_for(bake.outcome(), 30), BakeSuccess)
        assert await output_of(bake) == expected(lines)


async def test_an_outage_that_outlasts_the_outbox_holds_the_child_and_loses_nothing(tmp_path: Path) -> None:
    """However long the bus is away: what is journaled waits, the child's pipe is not read, and it goes on."""
    lines = 100_000  # 10.7 MB where the outbox may hold 2 MiB
    xml = f'<recipe name="held"><cli>{writer(tmp_path, lines)}</cli></recipe>'
    async with (
        mesh(tmp_path, "--outbox-max-bytes", "2MiB") as net,
        net.supervisor("boss") as boss,
    ):
        hello = await boss.bake('<recipe name="hello"><cli command="true"/></recipe>', node="alpha")
        assert isinstance(await hello.outcome(), BakeSuccess)
        gate = tmp_path / "gate"
        waiting = f"<arg>sh</arg><arg>-c</arg><arg>while [ ! -e {gate} ]; do sleep 0.01; done</arg>"
        bake = await boss.bake(xml.replace("<cli>", f"<cli>{waiting}</cli><cli>"), node="alpha")
        async for status in bake.status():
            if status.kind == "step":
                break
        await net.nats.kill()
        gate.touch()

        def blocked() -> bool:
            return any("pipe" in wchan(pid) for pid in alive(str(tmp_path / "writer.py")))

        await eventually(blocked, what="the child held at its full pipe")
        await net.nats.start()
        assert isinstance(await asyncio.wait_for(bake.outcome(), 60), BakeSuccess)
        assert await output_of(bake) == expected(lines)


async def test_a_full_store_holds_the_step_back_and_room_lets_it_go_on(tmp_path: Path) -> None:
    lines = 100_000  # 10.7 MB where 16 MiB less 12 of ballast are free
    xml = f'<recipe name="flood" status-interval-ms="300"><cli>{writer(tmp_path, lines)}</cli></recipe>'
    async with (
        mesh(tmp_path, "--store-max-bytes", "16MiB", "--outbox-max-bytes", "4MiB") as net,
        net.supervisor("boss") as boss,
        net.connect("builder-alpha") as bus,
    ):
        ballast = build(bus.mesh, "alpha", "somebody", "somebody-else-1", "Psyclone.Builder.Bake.Data")
        for number in range(12):
            await bus.publish_stored(ballast, Sealed(bytes(2**20), f"ballast-{number}"))
        bake = await boss.bake(xml, node="alpha")
        reading = asyncio.create_task(output_of(bake))
        async for status in bake.status():
            if "output store full" in status.summary:
                break
        assert bake.terminal is None
        await purge_subject(bus, storage.data_stream(bus.mesh, "alpha"), ballast)
        assert isinstance(await asyncio.wait_for(bake.outcome(), 60), BakeSuccess)
        assert await asyncio.wait_for(reading, 30) == expected(lines)


async def test_a_bake_that_filled_the_store_can_be_cancelled(tmp_path: Path) -> None:
    xml = f'<recipe name="flood" status-interval-ms="300"><cli>{writer(tmp_path, 10**7)}</cli></recipe>'
    async with (
        mesh(tmp_path, "--store-max-bytes", "16MiB", "--outbox-max-bytes", "4MiB") as net,
        net.supervisor("boss") as boss,
    ):
        bake = await boss.bake(xml, node="alpha")
        async for status in bake.status():
            if "output store full" in status.summary:
                break
        assert (await bake.cancel()).accepted
        outcome = await asyncio.wait_for(bake.outcome(), 20)
        assert isinstance(outcome, BakeCancelled)
        chunks = [chunk.seq async for chunk in bake.data()]
        assert chunks == list(range(1, (outcome.lastseq or 0) + 1))
        assert chunks
        # The store has room for the next one: the oldest ended bakes are purged when it is 80 % full.
        after = await boss.bake('<recipe name="after"><cli command="echo room"/></recipe>', node="alpha")
        assert isinstance(await asyncio.wait_for(after.outcome(), 20), BakeSuccess)
        assert await output_of(after) == b"room\n"


async def test_a_full_disk_under_the_journal_is_waited_out(tmp_path: Path) -> None:
    lines = 20_000
    xml = f'<recipe name="disk"><cli>{writer(tmp_path, lines, pause=0.005)}</cli></recipe>'
    with small_disk(tmp_path / "state-alpha", "24m") as disk:
        async with (
            mesh(tmp_path) as net,
            net.supervisor("boss") as boss,
        ):
            bake = await boss.bake(xml, node="alpha")
            async for _ in bake.status():
                break
            ballast = fill_disk(disk)
            await eventually(lambda: "no room on the disk" in net.node.log.read_text(), what="the full disk")
            assert bake.terminal is None
            ballast.unlink()
            assert isinstance(await asyncio.wait_for(bake.outcome(), 60), BakeSuccess)
            assert await output_of(bake) == expected(lines)


async def test_a_leaf_cut_off_in_mid_bake_delivers_every_byte_after_healing(tmp_path: Path) -> None:
    lines = 10_000
    xml = (
        '<recipe name="leafy" status-interval-ms="200" data-interval-ms="50">'
        f"<cli>{writer(tmp_path, lines, pause=0.02)}</cli></recipe>"
    )
    async with (
        hub_and_leaf(tmp_path) as pair,
        builder(tmp_path, pair.leaf.url, node_id="edge") as node,
        Supervisor.connect(nats=pair.hub.url, name="boss") as boss,
        Supervisor.connect(nats=pair.leaf.url, name="local", state=tmp_path / "local") as local,
    ):
        await eventually(boss.nodes, what="the node on the hub")
        early = await local.bake('<recipe name="early"><cli command="true"/></recipe>', node="edge")
        assert isinstance(await asyncio.wait_for(early.outcome(), 20), BakeSuccess)
        bake = await boss.bake(xml, node=node.node_id)
        reading = asyncio.create_task(output_of(bake))
        async for _ in bake.data():
            break
        await pair.cut()
        inside = await local.bake(
            '<recipe name="inside"><cli command="echo inside"/></recipe>', node=node.node_id
        )
        assert isinstance(await asyncio.wait_for(inside.outcome(), 20), BakeSuccess)
        await pair.heal()
        assert isinstance(await asyncio.wait_for(bake.outcome(), 60), BakeSuccess)
        assert await asyncio.wait_for(reading, 60) == expected(lines)


async def test_a_message_that_the_server_will_never_take_ends_its_bake(tmp_path: Path) -> None:
    """The server comes back with a lower limit than a chunk that waits: said, and the node goes on."""
    gate = tmp_path / "gate"
    code = (
        "import os, time\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "os.write(1, b'x' * 50000)"
    )
    big = f"<cli><arg>{sys.executable}</arg><arg>-c</arg><arg>{code}</arg></cli>"
    async with mesh(tmp_path) as net, net.supervisor("boss") as boss:
        bake = await boss.bake(f'<recipe name="big">{big}</recipe>', node="alpha")
        async for status in bake.status():
            if status.kind == "step":
                break
        await net.nats.kill()
        gate.touch()
        await eventually(lambda: not alive(str(gate)), what="the step during the outage")
        net.nats.config = replace(net.nats.config, max_payload=32 * 1024)
        await net.nats.start()
        outcome = await asyncio.wait_for(bake.outcome(), 30)
        assert isinstance(outcome, BakeFailed)
        assert outcome.code == "integrity"
        after = await boss.bake('<recipe name="after"><cli command="echo on"/></recipe>', node="alpha")
        assert isinstance(await asyncio.wait_for(after.outcome(), 20), BakeSuccess)
