"""How a process ended is known both ways: by a pidfd, and by a thread where the system has none."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from bakemesh.workerpool.output import Ring
from bakemesh.workerpool.spawning import Exit, spawn


@pytest.fixture(params=["pidfd", "thread"])
def way(request, monkeypatch):
    """Takes the pidfd away for one of the two."""
    if request.param == "thread":
        monkeypatch.delattr(os, "pidfd_open")


@pytest.mark.parametrize(
    ("code", "exit_"),
    [
        ("raise SystemExit(7)", Exit(code=7)),
        ("import os; os.abort()", Exit(signal=6)),
        ("pass", Exit(code=0)),
    ],
)
async def test_its_exit_is_told_once_with_its_output(way, code, exit_):
    child = spawn(
        asyncio.get_running_loop(),
        [sys.executable, "-I", "-S", "-c", f"print('said'); {code}"],
        {},
        Ring(999),
    )
    assert await child.exited(60) == exit_
    assert child.pid > 0
    said = await child.said(999)
    assert said in ("[stdout] said", "")  # abort loses what was not flushed
    child.kill()


async def test_a_kill_is_a_kill_and_a_second_one_nothing(way):
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    child = spawn(asyncio.get_running_loop(), command, {}, Ring(999))
    assert await child.exited(0) is None
    child.kill()
    assert await child.exited(60) == Exit(signal=9)
    child.kill()
    child.close()
    child.close()
    assert str(child.exit) == "killed by SIGKILL"
