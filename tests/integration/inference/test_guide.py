"""docs/inference.md: its programs and command lines run as written, its tables are those of the code."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bakemesh.bus.server_config import MAX_PAYLOAD
from bakemesh.inference import errors
from bakemesh.inference.carrying import AT_ONCE
from bakemesh.inference.errors import InferenceError
from bakemesh.inference.opening import DEADLINE_S
from bakemesh.inference.options import CallOptions, GenerateOptions
from bakemesh.protocol.inference.requests import MAX_ITEMS, MAX_STOPS, STOP_CHARACTERS
from bakemesh.protocol.psyspec import read_psyspec
from bakemesh.synapse.parameters import NAMES, Parameters
from bakemesh.synapse.scheduling.settings import Settings
from bakemesh.synapse.settings import MEMORY_SHARE
from bakemesh.worker.config import KEYS
from support.commandline import PROGRAM, environment
from support.nats import server
from support.synapse import synapse

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/inference.md").read_text("utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.strip().partition("  #")[0]
    for line in GUIDE.partition("## The command line")[2].partition("\n## ")[0].splitlines()
    if line.startswith("    bakemesh ")
]
MODELS = {
    "minilm": {"kind": "embed", "dims": 384, "context": 512},
    "ranker": {"kind": "rerank"},
    "small": {"kind": "generate"},
}


def section(title: str) -> str:
    found: str = GUIDE.partition(f"\n## {title}")[2].partition("\n## ")[0]
    assert found, title
    return found


@asynccontextmanager
async def mesh(folder: Path) -> AsyncIterator[str]:
    """A module with fake models of the guide's names; its server's address."""
    async with server(folder) as nats, synapse(folder, nats.url, MODELS):
        yield nats.url


async def run(*argv: str, cwd: Path, **environ: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env=environment(cwd, **environ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(60):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode()


async def test_every_program_runs(tmp_path: Path) -> None:
    assert len(PROGRAMS) >= 4
    async with mesh(tmp_path) as url:
        for program in PROGRAMS:
            changed = program.replace("nats://127.0.0.1:4222", url)
            code, output = await run(sys.executable, "-W", "error", "-c", changed, cwd=tmp_path)
            assert code == 0, f"{program}\n{output}"
            assert output.strip()


async def test_every_command_line_runs(tmp_path: Path) -> None:
    assert len(COMMANDS) >= 6
    (tmp_path / "corpus.txt").write_text("one\ntwo\n")
    (tmp_path / "passages.txt").write_text("bread\ncake\n")
    async with mesh(tmp_path) as url:
        for command in COMMANDS:
            words = shlex.split(command)
            code, output = await run(*PROGRAM, *words[1:], cwd=tmp_path, BAKEMESH_NATS=url)
            assert code == 0, f"{command}\n{output}"
    assert (tmp_path / "corpus.npy").stat().st_size > 2 * 384 * 4


@pytest.mark.parametrize("block", re.findall(r"^```xml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL))
def test_every_psyspec_loads_without_a_warning(block: str) -> None:
    found = read_psyspec(block, file="guide.xml", read=lambda name: "")
    assert found.modules
    assert not found.warnings


def test_its_table_of_errors_has_every_class_once() -> None:
    told = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", section("Errors"), re.MULTILINE)))
    there = [
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, InferenceError) and each is not InferenceError
    ]
    assert sorted(told) == sorted(there)


def test_its_tables_of_keywords_and_parameters_are_complete() -> None:
    client = section("The client")
    for name in (*CallOptions.__annotations__, *GenerateOptions.__annotations__):
        assert f"`{name}`" in client
    models = section("Models and aliases")
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", models, re.MULTILINE)) == sorted(NAMES)
    named = set(
        re.findall(r"`([a-z_]+)`", models.partition("is a runtime key of the engine:")[2].split(". ")[0])
    )
    assert named <= set(KEYS)


def test_its_numbers_are_those_of_the_code() -> None:
    limits, core = section("Limits"), Settings()
    assert f"| items of a request | {MAX_ITEMS:,}, and half" in limits
    assert f"({MAX_PAYLOAD >> 20} MiB on a server" in limits
    assert f"| tokens of a request | {core.tokens:,};" in limits
    assert f"| {core.bytes_in_flight >> 20} MiB |" in limits
    assert f"| requests of one call in flight | {AT_ONCE} |" in limits
    assert f"`max-queue-ms`; {core.max_load_s:.0f} s while its model" in limits
    assert f"one quantum of {core.quantum_tokens} tokens" in limits
    assert f"| {MAX_STOPS}, of {STOP_CHARACTERS} characters |" in limits
    assert f"an error; {DEADLINE_S:.0f} without it" in GUIDE
    assert f"| `max-queue-ms` | {Parameters().max_queue_ms} |" in GUIDE
    assert f"| `memory-mib` | {MEMORY_SHARE:.0%}".replace("%", " %") in GUIDE
