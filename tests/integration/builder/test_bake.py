"""A real Builder on a real server: plain bakes, their streams, and what a Status may hold."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from bakemesh.protocol.builder.messages import BakeData, BakeFailed, BakeStatus, BakeSuccess
from bakemesh.supervisor import Bake
from support.canary import canary, tapped
from support.mesh import mesh


async def streams_of(bake: Bake) -> dict[tuple[int, str], bytes]:
    """Everything that the bake wrote, by (stepindex, stream); the seq is checked by the SDK."""
    found: defaultdict[tuple[int, str], bytes] = defaultdict(bytes)
    async for chunk in bake.data():
        found[chunk.stepindex, chunk.stream] += chunk.data
    return dict(found)


async def statuses_of(bake: Bake) -> list[BakeStatus]:
    return [status async for status in bake.status()]


def python(code: str) -> str:
    """A cli step's arguments for a Python snippet."""
    return f"<arg>{sys.executable}</arg><arg>-c</arg><arg><![CDATA[{code}]]></arg>"


async def test_a_bake_from_recipe_to_success(tmp_path: Path) -> None:
    secret = canary()
    xml = f"""<recipe name="hello">
      <cli name="say" command="echo {secret}"/>
      <code name="both" language="python"><![CDATA[
import sys
print("{secret}")
print("{secret}", file=sys.stderr)
]]></code>
    </recipe>"""
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
        net.connect("ops") as bus,
        tapped(bus) as tap,
    ):
        bake = await boss.bake(xml, node="alpha")
        statuses, streams, outcome = await asyncio.gather(statuses_of(bake), streams_of(bake), bake.outcome())
        assert isinstance(outcome, BakeSuccess)
        assert streams == {
            (0, "stdout"): f"{secret}\n".encode(),
            (1, "stdout"): f"{secret}\n".encode(),
            (1, "stderr"): f"{secret}\n".encode(),
        }
        assert [status.serial for status in statuses] == list(range(1, len(statuses) + 1))
        kinds = [(s.kind, s.stepindex, s.outcome) for s in statuses if s.kind != "interim"]
        assert kinds == [
            ("start", None, None),
            ("step", 0, None),
            ("step", 0, "ok"),
            ("step", 1, None),
            ("step", 1, "ok"),
            ("outcome", None, "success"),
        ]
        assert outcome.final
        assert outcome.failedsteps == []
        assert outcome.pct == 100
        assert outcome.lastseq == 3
        assert statuses[-1].identity == bake.identity
        tap.assert_silent(secret)


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("binary", "import os; os.write(1, bytes(range(256)) * 4096)", bytes(range(256)) * 4096),
        ("invalid", r"import os; os.write(1, b'\xff\xfe\xc3(')", b"\xff\xfe\xc3("),
        ("no-newline", "print('x' * 700_000, end='')", b"x" * 700_000),
    ],
)
async def test_output_is_byte_exact(tmp_path: Path, name: str, code: str, expected: bytes) -> None:
    xml = f'<recipe name="bytes" max-data-bytes="65536"><cli name="{name}">{python(code)}</cli></recipe>'
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
    ):
        bake = await boss.bake(xml, node="alpha")
        chunks: list[BakeData] = [chunk async for chunk in bake.data()]
        assert b"".join(chunk.data for chunk in chunks) == expected
        assert [chunk.seq for chunk in chunks] == list(range(1, len(chunks) + 1))
        assert [chunk.finalchunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        for chunk in chunks:
            assert len(chunk.data) <= 65536
            assert chunk.partial == (len(chunk.data) == 65536)


async def test_a_failing_step_fails_the_bake(tmp_path: Path) -> None:
    secret = canary()
    xml = f"""<recipe name="fails"><cli name="bad">{python(f"print('{secret}'); raise SystemExit(7)")}</cli>
      <cli name="never" command="echo never"/></recipe>"""
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
        net.connect("ops") as bus,
        tapped(bus) as tap,
    ):
        bake = await boss.bake(xml, node="alpha")
        outcome = await bake.outcome()
        assert isinstance(outcome, BakeFailed)
        assert (outcome.code, outcome.stepindex) == ("step_failed", 0)
        ended = [s for s in await statuses_of(bake) if s.kind == "step" and s.outcome]
        assert [(s.outcome, s.exitcode) for s in ended] == [("failed", 7)]
        assert await streams_of(bake) == {(0, "stdout"): f"{secret}\n".encode()}
        tap.assert_silent(secret)


async def test_a_gigabyte_does_not_grow_the_builder(tmp_path: Path) -> None:
    """1 GiB through the journal and the stream, byte-exact by digest, with the Builder's memory flat."""
    size = 2**30
    code = f"import os\nb = bytes(range(256)) * 1024\nfor _ in range({size} // len(b)): os.write(1, b)"
    xml = f'<recipe name="big"><cli name="write">{python(code)}</cli></recipe>'
    async with (
        mesh(tmp_path) as net,
        net.supervisor("boss") as boss,
    ):
        bake = await boss.bake(xml, node="alpha")
        digest, total, highest = hashlib.sha256(), 0, 0
        async for chunk in bake.data():
            digest.update(chunk.data)
            total += len(chunk.data)
            highest = max(highest, _rss_mib(net.node.pid))
        assert total == size
        expected = hashlib.sha256()
        for _ in range(size // 2**18):
            expected.update(bytes(range(256)) * 1024)
        assert digest.digest() == expected.digest()
        assert highest < 250, f"the Builder grew to {highest} MiB"


def _rss_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0
