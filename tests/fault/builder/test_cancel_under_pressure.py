"""Cancel, and the Builder's stop, while nothing can be stored: at once, without a hole, a true lastseq."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from bakemesh.bus import Bus
from bakemesh.bus.errors import StoreFull
from bakemesh.bus.purge import purge_subject
from bakemesh.bus.sealing import Sealed
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeCancelled, BakeStatus, BakeSuccess
from bakemesh.protocol.subjects import build
from bakemesh.supervisor import Bake
from support.mesh import mesh
from support.processes import alive
from support.waiting import eventually

SMALL = ("--store-max-bytes", "16MiB", "--outbox-max-bytes", "4MiB")


def program(folder: Path, name: str, body: str) -> str:
    path = folder / name
    path.write_text(body)
    return f"<cli><arg>{sys.executable}</arg><arg>{path}</arg></cli>"


def flood(folder: Path, mebibytes: int | None, *, stubborn: bool = False, name: str = "flood.py") -> str:
    """Numbered lines of ten bytes; `stubborn` ones ignore TERM. None: without end."""
    ignore = "import signal; signal.signal(15, signal.SIG_IGN)\n" if stubborn else ""
    forever = "iter(int, 1)" if mebibytes is None else f"range({mebibytes * 2**20 // 65530})"
    return program(
        folder,
        name,
        f"import os\n{ignore}n = 0\n"
        f"for _ in {forever}:\n"
        "    lines = b''.join(b'%09d\\n' % i for i in range(n, n + 6553)); n += 6553\n"
        "    while lines: lines = lines[os.write(1, lines):]\n",
    )


async def until(bake: Bake, seen: Callable[[BakeStatus], bool]) -> BakeStatus:
    async for status in bake.status():
        if seen(status):
            return status
    raise AssertionError("the bake ended before")


async def fill(bus: Bus) -> str:
    """Fills the node's Data stream to the brim with somebody else's messages; gives their subject."""
    ballast = build(bus.mesh, "alpha", "somebody", "somebody-else-1", "Psyclone.Builder.Bake.Data")
    for number in range(1000):
        try:
            await bus.publish_stored(ballast, Sealed(bytes(2**19), f"ballast-{number}"))
        except StoreFull:
            return ballast
    raise AssertionError("the stream cannot be filled")


async def complete(bake: Bake, last: int | None) -> bytes:
    """The bake's output, which must be seq 1 to `last` without a hole."""
    chunks = [chunk async for chunk in bake.data()]
    assert [chunk.seq for chunk in chunks] == list(range(1, (last or 0) + 1))
    return b"".join(chunk.data for chunk in chunks)


async def test_a_bake_whose_end_waits_for_room_can_be_cancelled(tmp_path: Path) -> None:
    xml = f'<recipe name="flood" status-interval-ms="300">{flood(tmp_path, 19)}</recipe>'
    async with mesh(tmp_path, *SMALL) as net, net.supervisor("boss") as boss:
        bake = await boss.bake(xml, node="alpha")
        await until(bake, lambda status: status.kind == "step" and status.outcome == "ok")
        await until(bake, lambda status: "store full" in status.summary)
        refused = await bake.skip_step()
        assert (refused.accepted, refused.code) == (False, "terminal")
        assert (await bake.cancel()).accepted
        outcome = await asyncio.wait_for(bake.outcome(), 20)
        assert isinstance(outcome, BakeCancelled)
        await complete(bake, outcome.lastseq)


async def test_a_cancel_does_not_wait_behind_another_bakes_output(tmp_path: Path) -> None:
    async with mesh(tmp_path, *SMALL) as net, net.supervisor("boss") as boss:
        first = flood(tmp_path, None, name="first.py")
        hog = await boss.bake(f'<recipe name="hog" status-interval-ms="300">{first}</recipe>', node="alpha")
        await until(hog, lambda status: "store full" in status.summary)
        second = flood(tmp_path, None, name="second.py")
        behind = await boss.bake(f'<recipe name="b" status-interval-ms="300">{second}</recipe>', node="alpha")
        await until(behind, lambda status: "store full" in status.summary)
        assert (await behind.cancel()).accepted
        assert isinstance(await asyncio.wait_for(behind.outcome(), 20), BakeCancelled)
        assert hog.terminal is None
        assert (await hog.cancel()).accepted
        assert isinstance(await asyncio.wait_for(hog.outcome(), 20), BakeCancelled)


async def test_room_that_comes_during_a_cancel_makes_no_hole(tmp_path: Path) -> None:
    """The child ignores TERM and writes on through the grace; what is stored is a prefix of what it wrote."""
    step = flood(tmp_path, None, stubborn=True)
    xml = f'<recipe name="b" status-interval-ms="300" data-interval-ms="0">{step}</recipe>'
    async with (
        mesh(tmp_path, "--store-max-bytes", "32MiB", "--outbox-max-bytes", "1MiB") as net,
        net.supervisor("boss") as boss,
        net.connect("builder-alpha") as bus,
    ):
        ballast = await fill(bus)
        bake = await boss.bake(xml, node="alpha")
        await until(bake, lambda status: "store full" in status.summary)
        assert (await bake.cancel()).accepted
        await purge_subject(bus, storage.data_stream(bus.mesh, "alpha"), ballast)
        outcome = await asyncio.wait_for(bake.outcome(), 20)
        assert isinstance(outcome, BakeCancelled)
        written = await complete(bake, outcome.lastseq)
        lines = written.split(b"\n")[:-1]
        assert lines == [b"%09d" % number for number in range(len(lines))]


async def test_lastseq_is_true_after_a_crash_in_the_middle_of_a_cancel(tmp_path: Path) -> None:
    body = (
        "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\n"
        "while True: os.write(1, b'x' * 1000); time.sleep(0.002)\n"
    )
    xml = f'<recipe name="b" data-interval-ms="0">{program(tmp_path, "slow.py", body)}</recipe>'
    async with mesh(tmp_path) as net, net.supervisor("boss") as boss:
        bake = await boss.bake(xml, node="alpha")
        async for chunk in bake.data():
            if chunk.seq > 50:
                break
        assert (await bake.cancel()).accepted
        await net.nats.kill()
        await eventually(lambda: not alive(str(tmp_path / "slow.py")), what="the step's end")
        await net.node.kill9()
        await net.nats.start()
        await net.node.start()
        outcome = await asyncio.wait_for(bake.outcome(), 30)
        assert isinstance(outcome, BakeCancelled)
        await complete(bake, outcome.lastseq)


async def test_the_builder_stops_while_the_store_is_full_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    step = flood(tmp_path, 8).replace("<cli>", '<cli retryable="yes">')
    xml = f'<recipe name="b" status-interval-ms="300">{step}</recipe>'
    async with (
        mesh(tmp_path, "--store-max-bytes", "32MiB", "--outbox-max-bytes", "1MiB") as net,
        net.supervisor("boss") as boss,
        net.connect("builder-alpha") as bus,
    ):
        ballast = await fill(bus)
        bake = await boss.bake(xml, node="alpha")
        await until(bake, lambda status: "store full" in status.summary)
        assert await net.node.stop() == 0
        assert not alive(str(tmp_path / "flood.py"))
        await purge_subject(bus, storage.data_stream(bus.mesh, "alpha"), ballast)
        await net.node.start()
        outcome = await asyncio.wait_for(bake.outcome(), 60)
        assert isinstance(outcome, BakeSuccess)
        chunks = [chunk async for chunk in bake.data()]
        last = max(chunk.attempt for chunk in chunks)
        written = b"".join(chunk.data for chunk in chunks if chunk.attempt == last).split(b"\n")[:-1]
        assert written == [b"%09d" % number for number in range(8 * 2**20 // 65530 * 6553)]
