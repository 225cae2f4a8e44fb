"""The blocking facade: same results, Ctrl-C safe, nothing left running."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from pathlib import Path

import pytest

from bakemesh.bus.errors import BusUnreachable
from bakemesh.protocol.builder.messages import BakeCancelled, BakeSuccess
from bakemesh.supervisor import Closed, NodeUnknown, blocking
from support.supervision import RECIPE, idle, mesh, quick

INTERRUPTED = """
import sys
from bakemesh.supervisor import blocking

with blocking.Supervisor(sys.argv[1], "script") as supervisor:
    bake = supervisor.bake(sys.argv[2], node="beta")
    print(bake.recipe_id, flush=True)
    try:
        for status in bake.status():
            print(status.kind, flush=True)
    except KeyboardInterrupt:
        assert bake.cancel().accepted
        print(type(bake.outcome()).__name__, flush=True)
        for chunk in bake.data():
            print(chunk.data)
import threading
print([thread.name for thread in threading.enumerate()], flush=True)
"""


async def test_a_bake_from_recipe_to_success_in_a_thread_of_its_own(tmp_path: Path) -> None:
    def script(url: str) -> None:
        with blocking.Supervisor(url, "script") as supervisor:
            assert [node.name for node in supervisor.nodes()] == ["beta"]
            bake = supervisor.bake(RECIPE, node="beta")
            assert bake.result is not None
            assert b"".join(chunk.data for chunk in bake.data()) == b"one two"
            assert [status.serial for status in bake.status()] == [1, 2, 3]
            assert isinstance(bake.outcome(), BakeSuccess)
            assert [status.serial for status in supervisor.attach(bake.recipe_id).status()] == [1, 2, 3]
            with pytest.raises(NodeUnknown):
                supervisor.bake(RECIPE, node="gamma")
            with bake.status() as statuses:
                next(statuses)
            assert list(statuses) == []
        supervisor.close()
        with pytest.raises(Closed):
            supervisor.bake(RECIPE)
        assert not [thread for thread in threading.enumerate() if thread.name == "bakemesh supervisor"]

    async with mesh(tmp_path, quick) as here:
        await asyncio.to_thread(script, here.nats.url)


async def test_controls_and_pushes(tmp_path: Path) -> None:
    def script(url: str) -> None:
        with blocking.Supervisor(url, "script") as supervisor:
            bake = supervisor.bake(RECIPE, node="beta")
            assert bake.push("Words", "text").accepted
            results = [bake.pause(), bake.start(), bake.skip_step(), bake.retry_step(), bake.cancel()]
            assert all(result.accepted for result in results)
            assert isinstance(bake.outcome(), BakeCancelled)

    async with mesh(tmp_path, idle) as here:
        await asyncio.to_thread(script, here.nats.url)


async def test_ctrl_c_interrupts_an_iterator_and_the_bake_can_still_be_cancelled(tmp_path: Path) -> None:
    async with mesh(tmp_path, idle) as here:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-W",
            "error",
            "-c",
            INTERRUPTED,
            here.nats.url,
            RECIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"script-index-1\n"
        assert await process.stdout.readline() == b"start\n"
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        assert output.splitlines() == [b"BakeCancelled", b"['MainThread']"]
        assert errors == b""


def test_an_unreachable_bus_raises_and_leaves_no_thread() -> None:
    with pytest.raises(BusUnreachable):
        blocking.Supervisor("nats://127.0.0.1:9", "script", connect_timeout_s=0.3)
    assert not [thread for thread in threading.enumerate() if thread.name == "bakemesh supervisor"]
