"""Several nodes, what a module publishes of itself, and how it ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from bakemesh.bus import Bus
from bakemesh.protocol.inference.answers import Text
from bakemesh.protocol.inference.requests import Embed, Generate, Health, Models
from support.nats import connect, server
from support.synapse import calling, statuses, synapse
from support.waiting import eventually

MODELS = {"mini": {"kind": "embed"}, "chat": {"kind": "generate"}}


async def micro(bus: Bus, word: str) -> list[dict[str, Any]]:
    """What services of that name say of themselves."""
    answer = await bus.link.ask(f"$SRV.{word}.synapse", b"", 10)
    return [json.loads(answer.data)]


async def test_any_is_answered_by_one_node_and_a_named_one_by_itself(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, node_id="alpha"),
        synapse(tmp_path, nats.url, MODELS, node_id="beta"),
        calling(nats.url) as caller,
    ):
        for node in ("alpha", "beta"):
            asked = await caller.ask("Embed", "mini", Embed(texts=["x"]), node=node)
            assert asked.got[0].sender == f"synapse@{node}"
        whose = set()
        for _ in range(40):
            asked = await caller.ask("Embed", "mini", Embed(texts=["x"]), node="any")
            assert asked.ends() == 1
            whose.add(asked.got[0].sender)
        assert whose == {"synapse@alpha", "synapse@beta"}


async def test_a_cancel_of_any_finds_the_node_that_has_the_request(tmp_path: Path) -> None:
    config = {"chat": {"endless": "yes", "slow_ms": "20"}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, node_id="alpha", config=config),
        synapse(tmp_path, nats.url, MODELS, node_id="beta", config=config),
        calling(nats.url, node_id="any") as caller,
    ):
        some = [
            await caller.send("Generate", "chat", Generate(prompt="ab", maxtokens=100_000, stream=True))
            for _ in range(6)
        ]
        await eventually(lambda: any(len(each.got) > 2 for each in some), what="tokens")
        for each in some:
            await caller.cancel(each)
        for each in some:
            async with asyncio.timeout(20):
                await each.ended.wait()
        assert [each.ends() for each in some] == [1] * 6


async def test_status_tells_load_as_it_changes(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        connect(nats.url, name="eyes") as bus,
        statuses(bus) as heard,
        synapse(tmp_path, nats.url, MODELS, config={"mini": {"slow_ms": "1500"}}),
        calling(nats.url) as caller,
    ):
        await eventually(lambda: heard and heard[-1].state == "ok", what="a Status that is well")
        first = heard[-1]
        assert (first.node_id, first.lanes, first.models) == ("alpha", 1, ["chat", "mini"])
        asked = await caller.send("Embed", "mini", Embed(texts=["x"]))
        await eventually(lambda: heard[-1].busy == 1, what="a busy lane")
        assert heard[-1].bytesinflight > 0
        async with asyncio.timeout(20):
            await asked.ended.wait()
        await eventually(lambda: (heard[-1].busy, heard[-1].loaded) == (0, ["mini"]), what="an idle lane")
        assert heard[-1].bytesinflight == 0
        assert len({each.run for each in heard}) == 1
        assert [each.serial for each in heard] == sorted({each.serial for each in heard})
        count = len(heard)
        await eventually(lambda: len(heard) > count, within=5, what="a Status without any change")


async def test_a_lane_that_dies_is_told_and_comes_back(tmp_path: Path) -> None:
    config = {"mini": {"exit_code_after": "3:2"}}
    async with (
        server(tmp_path) as nats,
        connect(nats.url, name="eyes") as bus,
        statuses(bus) as heard,
        synapse(tmp_path, nats.url, MODELS, config=config),
        calling(nats.url) as caller,
    ):
        await caller.ask("Embed", "mini", Embed(texts=["first"]))
        asked = await caller.ask("Embed", "mini", Embed(texts=["second"]))
        assert asked.ends() == 1  # run once more, on the lane's next worker
        assert any(each.state == "down" for each in heard)
        await eventually(lambda: heard[-1].state == "ok", what="a lane that is back")


async def test_srv_shows_the_module_and_what_it_did(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS),
        calling(nats.url) as caller,
    ):
        for _ in range(3):
            await caller.ask("Embed", "mini", Embed(texts=["x"]))
        await caller.refused("Embed", "none", Embed(texts=["x"]))
        (info,) = await micro(caller.bus, "INFO")
        assert info["metadata"]["nodeid"] == "alpha"
        assert "inference-v1" in info["metadata"]["protocols"]
        endpoints = {(each["name"], each["queue_group"]) for each in info["endpoints"]}
        assert {("Embed", ""), ("Embed", "synapse"), ("Ingest", "")} <= endpoints
        (stats,) = await micro(caller.bus, "STATS")
        (embed,) = [
            each for each in stats["endpoints"] if (each["name"], each["queue_group"]) == ("Embed", "")
        ]
        assert (embed["num_requests"], embed["num_errors"]) == (4, 1)
        assert "model_unknown" in embed["last_error"]
        assert embed["average_processing_time"] > 0


async def test_a_module_that_ends_finishes_what_runs_and_refuses_what_comes(tmp_path: Path) -> None:
    config = {"mini": {"slow_ms": "1500"}}
    async with (
        server(tmp_path) as nats,
        connect(nats.url, name="eyes") as bus,
        statuses(bus) as heard,
        synapse(tmp_path, nats.url, MODELS, config=config) as module,
        calling(nats.url) as caller,
    ):
        runs = await caller.send("Embed", "mini", Embed(texts=["x"]))
        await eventually(lambda: heard and heard[-1].busy == 1, what="a busy lane")
        assert module.process is not None
        module.process.terminate()
        await eventually(lambda: heard[-1].state == "draining", what="a Status that says so")
        late = await caller.refused("Embed", "mini", Embed(texts=["late"]))
        assert (late.code, late.error_class) == ("module_restarted", "transient")
        assert late.retry_after_ms is not None
        async with asyncio.timeout(20):
            await runs.ended.wait()
        assert runs.last.n == 1
        assert await module.ended() == 0
        assert heard[-1].state == "draining"
        assert (heard[-1].queued, heard[-1].bytesinflight) == (0, 0)


async def test_what_takes_too_long_ends_typed_when_the_module_does(tmp_path: Path) -> None:
    config = {"chat": {"endless": "yes", "slow_ms": "50"}, "mini": {"slow_ms": "60000"}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, config=config, workers=2) as module,
        calling(nats.url) as caller,
    ):
        stream = await caller.send("Generate", "chat", Generate(prompt="ab", maxtokens=100_000, stream=True))
        slow = await caller.send("Embed", "mini", Embed(texts=["x"]))
        await eventually(lambda: len(stream.got) > 3, what="tokens")
        assert await module.stop() == 0
        for each in (stream, slow):
            async with asyncio.timeout(20):
                await each.ended.wait()
            assert each.ends() == 1
        assert slow.last.code == "module_restarted"
        assert not isinstance(stream.last, Text)
        assert stream.last.code == "module_restarted"


async def test_a_start_after_a_kill_has_its_models_and_another_run(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        connect(nats.url, name="eyes") as bus,
        statuses(bus) as heard,
        synapse(tmp_path, nats.url, MODELS) as module,
        calling(nats.url) as caller,
    ):
        await caller.ask("Embed", "mini", Embed(texts=["x"]))
        before = (await caller.ask("Models", "-", Models())).last
        first = heard[-1].run
        await module.kill9()
        (tmp_path / "mini.fake").unlink()  # its content is in the cache
        await module.start()
        after = (await caller.ask("Models", "-", Models())).last
        assert [(each["alias"], each["digest"]) for each in after.models] == [
            (each["alias"], each["digest"]) for each in before.models
        ]
        assert (await caller.ask("Embed", "mini", Embed(texts=["x"]))).last.n == 1
        await eventually(lambda: heard[-1].run != first, what="another run")
        log = module.log.read_text()
        assert log.count("chat: hash") == 2  # its begin and its end, of the first start alone
        assert (await caller.ask("Health", "-", Health())).last.state == "ok"
