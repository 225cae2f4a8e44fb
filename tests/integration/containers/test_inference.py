"""The profile `inference` of compose.yaml: a module and two lane hosts as services of their own, on the bus.

The engine is the fake one: what llama.cpp computes in a container is the image's (`test_engine_image`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from bakemesh.bus import Bus, BusSettings
from bakemesh.inference import Inference
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.inference.lanes import LaneStatus
from bakemesh.protocol.subjects import WORKER_STATUS, pattern
from support.containers import NODE, Composition, composition
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LANES = ("lanes-1", "lanes-2")
DIMS = 16


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composition]:
    models = tmp_path_factory.mktemp("models")
    models.chmod(0o755)
    (models / "mini.fake").write_text(json.dumps({"dims": DIMS}))
    with composition(
        "nats", "thinker", *LANES,
        profiles=("inference",), ENGINE="fake", BAKEMESH_ENGINE_IMAGE=NODE, MODELS=str(models),
    ) as running:  # fmt: skip
        yield running


@asynccontextmanager
async def client(mesh: Composition) -> AsyncIterator[Inference]:
    """A client on the host, the model ingested."""
    await asyncio.to_thread(mesh.healthy, "thinker")
    async with Inference.connect(mesh.url, name="host") as inference:
        await inference.ingest("/models/mini.fake", "mini", node="thinker")
        yield inference


@asynccontextmanager
async def lanes_of(mesh: Composition) -> AsyncIterator[dict[str, LaneStatus]]:
    """The last Status of each node's lane, as they come."""
    found: dict[str, LaneStatus] = {}

    def take(delivery: Delivery) -> None:
        message = delivery.received.message
        assert isinstance(message, LaneStatus)
        found[message.node_id] = message

    async with await Bus.connect(BusSettings(servers=(mesh.url,), name="watcher", node_id="host")) as bus:
        await bus.subscribe(pattern(bus.mesh, WORKER_STATUS), take)
        yield found


async def test_a_module_works_on_lanes_of_other_containers(mesh: Composition) -> None:
    async with client(mesh) as inference, lanes_of(mesh) as lanes:
        texts = [f"text number {number}" for number in range(200)]
        together = await inference.embed(texts, model="mini")
        assert together.shape == (200, DIMS)
        for number in (0, 7, 199):
            assert np.allclose(await inference.embed([texts[number]], model="mini"), together[number])
        await eventually(lambda: set(lanes) == set(LANES), what="a Status of every lane")
        [health] = await inference.health("thinker")
        assert {lane["node"] for lane in health.lanes} == set(LANES)


async def test_a_lane_host_that_is_killed_costs_nobody_an_answer(mesh: Composition) -> None:
    async with client(mesh) as inference, lanes_of(mesh) as lanes:
        await eventually(
            lambda: {lane.node_id for lane in lanes.values() if lane.state == "idle"} == set(LANES),
            what="two idle lanes",
        )
        wanted = {number: await inference.embed([f"text {number}"], model="mini") for number in range(20)}
        run = lanes["lanes-1"].run
        answered = 0

        async def ask(number: int) -> None:
            nonlocal answered
            for _ in range(20):
                vectors = await inference.embed([f"text {number}"], model="mini")
                assert np.allclose(vectors, wanted[number])
                answered += 1

        asking = [asyncio.ensure_future(ask(number)) for number in wanted]
        await eventually(lambda: answered > 20, what="answers")
        await asyncio.to_thread(mesh.kill, "lanes-1")
        await asyncio.gather(*asking)
        assert answered == 400
        await eventually(
            lambda: lanes["lanes-1"].run != run and lanes["lanes-1"].state == "idle",
            what="the lane host started again",
            within=90,
        )
