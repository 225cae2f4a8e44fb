"""`bakemesh synapse` on the command line."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from bakemesh.protocol.inference.requests import Embed
from support.nats import server
from support.startup import RunningStartup
from support.synapse import calling, fake_model

BAKEMESH = (sys.executable, "-m", "bakemesh.cli")


def said(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BAKEMESH, *words], capture_output=True, text=True, timeout=60, check=False)


async def test_the_verb_runs_a_module(tmp_path: Path) -> None:
    path = fake_model(tmp_path, "mini", kind="embed", dims=32)
    async with server(tmp_path) as nats:
        command = [*BAKEMESH, "synapse", "--nats", nats.url, "--node", "alpha"]
        command += ["--state", str(tmp_path / "state"), "--engine=fake", "--workers=1"]
        command += [f"--model=mini={path}", "--model", "mini.slow_ms=1"]
        running = RunningStartup(command, tmp_path / "synapse.log")
        try:
            await running.start()
            async with calling(nats.url) as caller:
                assert (await caller.ask("Embed", "mini", Embed(texts=["x"]))).last.dims == 32
            assert await running.stop() == 0
        finally:
            await running.kill9()


async def test_what_is_wrong_is_said_before_anything_starts(tmp_path: Path) -> None:
    async with server(tmp_path) as nats:
        common = ("synapse", "--nats", nats.url, "--node", "alpha", "--state", str(tmp_path / "s"))
        for words, line in (
            (("--lanes=locl",), "did you mean 'local'"),
            (("--model=chat",), "ALIAS=PATH"),
            (("--engine=fake", f"--model=a={tmp_path}/absent.fake"), "absent.fake"),
        ):
            found = await asyncio.to_thread(said, *common, *words)
            assert found.returncode == 2, found
            assert line in found.stderr


def test_a_bus_that_is_not_there_is_its_own_exit_code(tmp_path: Path) -> None:
    found = said("synapse", "--nats", "nats://127.0.0.1:1", "--node", "alpha", "--state", str(tmp_path))
    assert found.returncode == 5, found
