"""The blocking client: same results, Ctrl-C safe, nothing left running."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from pathlib import Path

import pytest

from bakemesh.bus.errors import BusUnreachable
from bakemesh.inference import Closed, ModelUnknown, Text, Token, Usage, blocking
from support.inference import vectors_of, world
from support.waiting import eventually

INTERRUPTED = """
import sys
from bakemesh.inference import blocking

with blocking.Inference(sys.argv[1], "script") as inference:
    print("open", flush=True)
    try:
        inference.embed(["x"], model="mini")
    except KeyboardInterrupt:
        print(inference.generate("a b", "echo"), flush=True)
import threading
print([thread.name for thread in threading.enumerate()], flush=True)
"""


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "bakemesh inference"]


async def test_every_call_gives_what_the_asynchronous_one_does(tmp_path: Path) -> None:
    def script(url: str) -> None:
        usage = Usage()
        with blocking.Inference(url, "script", deadline_s=20) as inference:
            assert (inference.embed(["a", "b"], model="mini", usage=usage) == vectors_of(["a", "b"])).all()
            assert inference.rerank("a", ["a", "b"], "ranker").tolist() == [1, 0]
            assert inference.generate("a b", "echo", max_tokens=1).text == "a"
            assert list(inference.stream("a b", "echo")) == [
                Token(0, "a"),
                Token(1, " b"),
                Text("a b", "stop", 2, 2, "alpha"),
            ]
            assert inference.chat([("user", "hi")], "echo").text == "hi"
            with inference.chat_stream([("user", "hi you")], "echo") as parts:
                assert next(parts) == Token(0, "hi")
            assert list(parts) == []
            assert {each.alias for each in inference.models()} == {"mini", "ranker", "echo"}
            assert [each.state for each in inference.health("alpha")] == ["ok"]
            assert inference.probe("mini") == "ok"
            assert inference.ingest("/x", "new").alias == "new"
            assert [node.node_id for node in inference.nodes] == ["alpha"]
            assert inference.usage.requests >= usage.requests == 1
            with pytest.raises(ModelUnknown):
                inference.embed(["a"], model="nope")
        inference.close()
        with pytest.raises(Closed):
            inference.embed(["a"], model="mini")
        assert not threads()

    async with world(tmp_path) as mesh:
        await asyncio.to_thread(script, mesh.nats.url)


async def test_ctrl_c_cancels_the_request_and_the_client_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        mesh.module.faults.deaf = True
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", INTERRUPTED, mesh.nats.url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"open\n"
        await eventually(lambda: mesh.module.asked)
        mesh.module.faults.deaf = False
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        assert output.splitlines() == [b"a b", b"['MainThread']"]
        assert errors == b""
        assert mesh.module.cancelled == [mesh.module.asked[0].id]


def test_an_unreachable_bus_raises_and_leaves_no_thread() -> None:
    with pytest.raises(BusUnreachable):
        blocking.Inference("nats://127.0.0.1:9", "script", connect_timeout_s=0.3)
    assert not threads()
