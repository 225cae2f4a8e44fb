"""Modules, workers and the bus killed under load: each caller sees one end, and what is left works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bakemesh.bus.errors import BusError
from bakemesh.inference import Inference, InferenceError
from bakemesh.protocol.inference.requests import Embed, Generate, Health
from bakemesh.worker.engines.fake import vector
from support.nats import connect, server
from support.processes import children, gone
from support.startup import RunningStartup
from support.synapse import Caller, calling, statuses, synapse
from support.waiting import eventually

MODELS = {"mini": {"kind": "embed", "dims": 16}, "chat": {"kind": "generate"}}
SLOW = {"mini": {"slow_ms": "5"}, "chat": {"slow_ms": "2"}}
CALLERS = 24


class Load:
    """Callers that never pause. `ends`: how their calls ended; `wrong`: results that are not theirs."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self.wrong: list[object] = []
        self._stop = asyncio.Event()

    async def embeds(self, inference: Inference, who: int) -> None:
        """One caller of embeddings, each text its own."""
        number = 0
        while not self._stop.is_set():
            number += 1
            text = f"caller {who}, text {number}"
            await self._one("embed", lambda text=text: self._embed(inference, text))

    async def streams(self, inference: Inference, who: int) -> None:
        """One caller of streams."""
        number = 0
        while not self._stop.is_set():
            number += 1
            prompt = f"{who}-{number}"
            await self._one("stream", lambda prompt=prompt: self._stream(inference, prompt))

    async def _one(self, kind: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(40):  # far beyond what a call is given: a hang is a failure
                await call()
        except (InferenceError, BusError) as error:
            self.ends[f"{kind}: {type(error).__name__}"] += 1
            await asyncio.sleep(0.01)
        else:
            self.ends[f"{kind}: result"] += 1

    async def _embed(self, inference: Inference, text: str) -> None:
        found = await inference.embed([text], model="mini", deadline_s=20)
        if not np.allclose(found[0], vector(list(text.encode()), "mean", True, 16), atol=1e-5):
            self.wrong.append(text)

    async def _stream(self, inference: Inference, prompt: str) -> None:
        parts = [part async for part in inference.stream(prompt, model="chat", deadline_s=20)]
        whole = "".join(f"{byte} " for byte in prompt.encode())
        said = "".join(part.text for part in parts[:-1])
        if (said, parts[-1].text) != (whole, whole):
            self.wrong.append((prompt, parts))

    def results(self) -> int:
        """Calls with a result so far."""
        return self.ends["embed: result"] + self.ends["stream: result"]

    async def more(self, number: int = 50) -> None:
        """Returns once so many more have come."""
        wanted = self.results() + number
        await eventually(lambda: self.results() >= wanted, within=60, what=f"{number} more results")

    def stop(self) -> None:
        """The calls of now are the last."""
        self._stop.set()


def workers_of(module: RunningStartup) -> list[int]:
    """Its workers' pids."""
    assert module.process is not None
    return children(module.process.pid)


async def idle(caller: Caller) -> bool:
    stamp = (await caller.ask("Health", "-", Health())).last
    return bool((stamp.bytesinflight, stamp.queued, stamp.state) == (0, 0, "ok"))


async def test_a_module_killed_under_load_gives_each_caller_one_end(tmp_path: Path) -> None:
    load = Load()
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, config=SLOW, workers=2) as module,
        Inference.connect(nats.url, name="app") as inference,
    ):
        async with asyncio.TaskGroup() as group:
            for who in range(CALLERS):
                group.create_task(load.embeds(inference, who))
            for who in range(4):
                group.create_task(load.streams(inference, who))
            for _ in range(2):
                await load.more()
                workers = workers_of(module)
                await module.kill9()
                await eventually(lambda workers=workers: all(map(gone, workers)), what="the workers' end")
                await module.start()
            await load.more()
            load.stop()
        assert load.wrong == []
        known = {"result", "ModuleRestarted", "NodeGone", "NoNode", "EngineCrashed", "QueueFull", "LaneBusy"}
        known |= {"DeadlineExceeded", "ModelLoading"}
        assert {end.partition(": ")[2] for end in load.ends} <= known, load.ends
        async with calling(nats.url) as caller:
            await eventually(lambda: idle(caller), what="an idle module")


async def test_workers_killed_under_load_cost_no_caller_two_ends(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, config=SLOW, workers=2) as module,
        calling(nats.url) as caller,
    ):
        assert module.process is not None
        killed = 0
        for number in range(300):
            await caller.send("Embed", "mini", Embed(texts=[f"text {number}"]))
            if number % 5 == 0:
                await caller.send("Generate", "chat", Generate(prompt=f"p{number}", stream=True))
            if number in (100, 200):
                await eventually(lambda number=number: ended(caller) > number // 2, what="answers")
                pids = workers_of(module)
                os.kill(pids[0], signal.SIGKILL)
                killed += 1
        await eventually(lambda: ended(caller) == len(caller.asked), within=60, what="all ends")
        await eventually(lambda: idle(caller), what="an idle module")
        assert killed == 2
        assert [each.ends() for each in caller.asked] == [1] * len(caller.asked)
        for number, each in enumerate(each for each in caller.asked if ".Embed" in each.subject):
            if type(each.last).__name__ == "Vectors":
                expected = vector(list(f"text {number}".encode()), "mean", True, 16)
                assert np.allclose(np.frombuffer(each.last.data, "<f4"), expected, atol=1e-5)
            else:
                assert each.last.code == "engine_crashed"


def ended(caller: Caller) -> int:
    return sum(each.ended.is_set() for each in caller.asked)


async def test_a_bus_that_is_away_for_a_while_ends_no_module(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        connect(nats.url, name="eyes") as bus,
        statuses(bus) as heard,
        synapse(tmp_path, nats.url, MODELS, config=SLOW) as module,
        calling(nats.url) as caller,
    ):
        await caller.ask("Embed", "mini", Embed(texts=["x"]))
        run = heard[-1].run
        with contextlib.suppress(BusError):
            for number in range(20):
                await caller.send("Embed", "mini", Embed(texts=[f"lost {number}"]))
        await nats.kill()
        await nats.start()
        await caller.bus.wait_connected(30)
        count = len(heard)
        await eventually(lambda: len(heard) > count, what="a Status")

        async def answered() -> Any:
            try:
                asked = await caller.send("Embed", "mini", Embed(texts=["again"]))
                async with asyncio.timeout(5):
                    await asked.ended.wait()
            except (BusError, TimeoutError):
                return False
            return not asked.failed and asked.last.n == 1

        await eventually(answered, within=60, what="an answer")
        assert heard[-1].run == run  # the same one, all the time
        await eventually(lambda: idle(caller), what="an idle module")
        assert await module.stop() == 0


@pytest.mark.parametrize("grace", [True, False])
async def test_no_worker_outlives_its_module(tmp_path: Path, grace: bool) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, workers=2) as module,
        calling(nats.url) as caller,
    ):
        await caller.ask("Embed", "mini", Embed(texts=["x"]))
        pids = workers_of(module)
        assert len(pids) == 2
        if grace:
            assert await module.stop() == 0
        else:
            await module.kill9()
        await eventually(lambda: all(map(gone, pids)), what="the end of all")
