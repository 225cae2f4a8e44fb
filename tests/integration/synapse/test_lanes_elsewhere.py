"""A module that has no worker of its own, and one that has both kinds."""

from __future__ import annotations

from pathlib import Path

from bakemesh.protocol.inference.requests import Embed, Generate, Health
from support.lanehosts import lanehost
from support.nats import server
from support.processes import children
from support.synapse import calling, synapse
from support.waiting import eventually

MODELS = {"mini": {"kind": "embed", "dims": 16}, "chat": {"kind": "generate"}}


async def test_a_module_without_workers_waits_for_lanes_and_works_on_them(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, "--lanes=bus", wait=False) as module,
        calling(nats.url) as caller,
    ):
        await eventually(lambda: "chat: hash" in module.log.read_text(), what="the models")

        async def answers() -> bool:
            asked = await caller.send("Health", "-", Health())
            await asked.ended.wait()
            return not asked.failed and asked.last.state == "down"

        await eventually(answers, what="a module that says it has no lane")
        assert module.of("ready") == []
        async with lanehost(tmp_path, nats.url, "gamma", workers=2):
            await module.until("ready", deadline=60)
            assert module.process is not None
            assert children(module.process.pid) == []
            assert (await caller.ask("Embed", "mini", Embed(texts=["x", "y"]))).last.n == 2
            stream = await caller.ask("Generate", "chat", Generate(prompt="abc", stream=True))
            assert stream.last.text == "97 98 99 "
            stamp = (await caller.ask("Health", "-", Health())).last
            assert {each["node"] for each in stamp.lanes} == {"gamma"}
            assert stamp.state == "ok"


async def test_a_module_with_both_kinds_uses_both(tmp_path: Path) -> None:
    config = {"mini": {"slow_ms": "300"}}
    async with (
        server(tmp_path) as nats,
        lanehost(tmp_path, nats.url, "gamma"),
        synapse(tmp_path, nats.url, MODELS, "--lanes=both", config=config),
        calling(nats.url) as caller,
    ):

        async def two_lanes() -> bool:
            stamp = (await caller.ask("Health", "-", Health())).last
            return sum(each["up"] for each in stamp.lanes) == 2

        await eventually(two_lanes, what="a lane of each kind")

        async def both() -> bool:
            some = [
                await caller.send("Embed", "mini", Embed(texts=["x" * 400] * 4, work_class="bulk"))
                for _ in range(4)
            ]
            for each in some:
                await each.ended.wait()
            stamp = (await caller.ask("Health", "-", Health())).last
            assert [each.ends() for each in some] == [1] * 4
            return {each["node"] for each in stamp.lanes if each["loaded"]} == {"alpha", "gamma"}

        await eventually(both, within=60, what="work on both")
