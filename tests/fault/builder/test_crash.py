"""kill -9 of the Builder at any moment: nothing runs twice silently, no journaled byte is lost or repeated,
no child is left behind, and the bake goes on or ends with a typed reason.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from bakemesh.protocol.builder.messages import BakeFailed, BakeStatus, BakeSuccess
from bakemesh.supervisor import Bake
from support.mesh import mesh
from support.processes import alive
from support.waiting import eventually


def script(folder: Path, name: str, body: str) -> str:
    """A Python script as arguments of a cli step."""
    path = folder / name
    path.write_text(body)
    return f"<arg>{sys.executable}</arg><arg>{path}</arg>"


async def all_statuses(bake: Bake) -> list[BakeStatus]:
    return [status async for status in bake.status()]


async def test_a_step_in_flight_is_never_run_twice_silently(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    body = f"import time\nopen({str(runs)!r}, 'a').write('x')\nprint('begun', flush=True)\ntime.sleep(60)\n"
    program = script(tmp_path, "once.py", body)
    xml = f'<recipe name="once"><cli name="long">{program}</cli><cli command="true"/></recipe>'
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
    ):
        bake = await boss.bake(xml, node="alpha")
        async for chunk in bake.data():
            assert chunk.data == b"begun\n"
            break
        await net.node.kill9()
        await eventually(lambda: not alive(str(tmp_path / "once.py")), within=3)
        await net.node.start()
        outcome = await asyncio.wait_for(bake.outcome(), 20)
        assert isinstance(outcome, BakeFailed)
        assert (outcome.code, outcome.stepindex) == ("builder_restarted", 0)
        assert runs.read_text() == "x"
        chunks = [chunk async for chunk in bake.data()]
        assert [(c.seq, c.data, c.finalchunk, c.aborted) for c in chunks] == [
            (1, b"begun\n", False, False),
            (2, b"", True, True),
        ]
        assert outcome.lastseq == 2


async def test_a_retryable_step_runs_again_as_a_new_attempt(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    body = (
        "import os, time\n"
        "print('begun', flush=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    )
    program = script(tmp_path, "again.py", body)
    xml = f'<recipe name="again"><cli name="w" retryable="yes">{program}</cli></recipe>'
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
    ):
        bake = await boss.bake(xml, node="alpha")
        async for _ in bake.data():
            break
        await net.node.kill9()
        await net.node.start()
        gate.touch()
        assert isinstance(await asyncio.wait_for(bake.outcome(), 20), BakeSuccess)
        chunks = [(c.attempt, c.data, c.finalchunk, c.aborted) async for c in bake.data()]
        assert chunks == [
            (1, b"begun\n", False, False),
            (1, b"", True, True),
            (2, b"begun\n", True, False),
        ]
        steps = [(s.attempt, s.outcome) for s in await all_statuses(bake) if s.kind == "step"]
        assert steps == [(1, None), (1, "failed"), (2, None), (2, "ok")]


async def test_paused_held_and_queued_bakes_rest_through_a_crash(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waits = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    slow = script(tmp_path, "slow.py", waits)
    async with (
        mesh(tmp_path, "--max-bakes", "2") as net,
        net.supervisor("boss") as boss,
    ):
        paused = await boss.bake(
            f'<recipe name="p"><cli>{slow}</cli><cli command="true"/></recipe>', node="alpha"
        )
        assert (await paused.pause()).accepted
        gate.touch()
        held = await boss.bake(
            '<recipe name="h" on-failure="hold"><cli command="false" retryable="yes"/></recipe>', node="alpha"
        )
        queued = await boss.bake('<recipe name="q"><cli command="true"/></recipe>', node="alpha")
        for bake in (paused, held):
            async for status in bake.status():
                if status.type.endswith("Paused"):
                    break
        await net.node.kill9()
        await net.node.start()
        assert queued.terminal is None
        assert (await paused.start()).accepted
        assert isinstance(await asyncio.wait_for(paused.outcome(), 20), BakeSuccess)
        assert isinstance(await asyncio.wait_for(queued.outcome(), 20), BakeSuccess)
        assert (await held.skip_step()).accepted
        assert isinstance(await asyncio.wait_for(held.outcome(), 20), BakeSuccess)


@pytest.mark.parametrize("seed", range(4))
async def test_kills_at_random_moments_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    """Chatty retryable and silent non-retryable bakes under a Builder that is killed again and again."""
    chance = random.Random(seed)
    ledger = tmp_path / "ledger"
    ledger.touch()
    once = script(
        tmp_path,
        "ledger.py",
        f"import sys, time\nopen({str(ledger)!r}, 'a').write(sys.argv[1] + '\\n')\ntime.sleep(0.05)\n",
    )
    chatty = script(
        tmp_path, "chatty.py", "for i in range(3000): print(f'{i:06d}', 'y' * 90)\nprint('end')\n"
    )
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
    ):
        bakes: list[tuple[Bake, bool]] = []
        for number in range(6):
            steps = "".join(
                f"<cli name='s{i}' on-failure='continue'>{once}<arg>{number}-{i}</arg></cli>"
                for i in range(6)
            )
            bakes.append((await boss.bake(f'<recipe name="once">{steps}</recipe>', node="alpha"), False))
            xml = f'<recipe name="chat" max-data-bytes="4096"><cli retryable="yes">{chatty}</cli></recipe>'
            bakes.append((await boss.bake(xml, node="alpha"), True))
        for _ in range(4):
            await asyncio.sleep(chance.uniform(0.01, 0.4))
            await net.node.kill9()
            await eventually(lambda: not alive(str(tmp_path / "chatty.py")), within=3)
            await net.node.start()
        wanted = b"".join(b"%06d " % i + b"y" * 90 + b"\n" for i in range(3000)) + b"end\n"
        for bake, is_chatty in bakes:
            outcome = await asyncio.wait_for(bake.outcome(), 60)
            statuses = await all_statuses(bake)
            assert [s.serial for s in statuses] == list(range(1, len(statuses) + 1))
            assert sum(s.final for s in statuses) == 1
            chunks = [chunk async for chunk in bake.data()]
            assert [c.seq for c in chunks] == list(range(1, outcome.lastseq + 1))  # type: ignore[operator]
            if is_chatty:
                assert isinstance(outcome, BakeSuccess)
                last = max(c.attempt for c in chunks)
                for attempt in range(1, last + 1):
                    text = b"".join(c.data for c in chunks if c.attempt == attempt)
                    assert wanted.startswith(text), "a journaled byte was lost or repeated"
                assert b"".join(c.data for c in chunks if c.attempt == last) == wanted
        assert all(count == 1 for count in Counter(ledger.read_text().split()).values()), "a step ran twice"
        assert not alive(str(tmp_path / "ledger.py"))
