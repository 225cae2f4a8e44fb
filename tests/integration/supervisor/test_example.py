"""The example and the guide, run as written against a real Builder."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from support.builder import builder
from support.nats import server

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/supervisor/nightly.py"
GUIDE = ROOT / "docs/write-a-supervisor.md"
SECONDS = 60


async def run(*argv: str, cwd: Path, stdin: str = "") -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *argv,
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate(stdin.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode()


def snippets() -> list[tuple[str, str]]:
    """Every python block of the guide but the example, with the heading above it."""
    text = GUIDE.read_text("utf-8")
    found, heading = [], ""
    for match in re.finditer(r"^#+ ([^\n]+)$|^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match[1]:
            heading = match[1]
        elif match[2].strip() != EXAMPLE.read_text("utf-8").strip():
            found.append((heading, match[2]))
    return found


async def test_the_example_retries_pushes_and_succeeds(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, builder(tmp_path, nats.url, node_id="alpha"):
        code, output = await run(str(EXAMPLE), nats.url, "alpha", cwd=tmp_path)
    assert code == 0, output
    lines = [line.strip() for line in output.splitlines()]
    assert lines[0] == "nightly-report-1 on alpha"
    assert "stderr: no list yet" in lines
    assert "RetryStep: ok" in lines
    assert "stdout: 2 apple" in re.sub(r" +", " ", output)
    assert "1 pear" in re.sub(r" +", " ", output)
    assert "plum" not in output, "the pushed data says what is unwanted"


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text("utf-8").splitlines()) < 60


def test_the_guide_shows_the_example_as_it_is() -> None:
    assert EXAMPLE.read_text("utf-8").strip() in GUIDE.read_text("utf-8")


@pytest.mark.parametrize("heading", [heading for heading, _ in snippets()])
async def test_every_program_of_the_guide_runs(tmp_path: Path, heading: str) -> None:
    program = dict(snippets())[heading]
    async with server(tmp_path) as nats, builder(tmp_path, nats.url, node_id="alpha"):
        code, output = await run(
            "-W", "error", "-c", program.replace("nats://127.0.0.1:4222", nats.url), cwd=tmp_path
        )
    assert code == 0, output
