"""Sizes, deadlines, unreadable messages, ids that are used twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgpack

from bakemesh.bus.server_config import MAX_PAYLOAD
from bakemesh.protocol.inference.answers import Error, Vectors
from bakemesh.protocol.inference.requests import Embed, Generate, Health, Rerank
from bakemesh.protocol.message import decode
from bakemesh.protocol.subjects import build
from support.nats import server
from support.synapse import calling, synapse
from support.waiting import eventually

HALF = MAX_PAYLOAD // 2


async def test_vectors_are_cut_between_items_to_half_of_what_the_server_takes(tmp_path: Path) -> None:
    models = {"wide": {"kind": "embed", "dims": 16384}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, models),
        calling(nats.url) as caller,
    ):
        texts = [f"text {number}" for number in range(100)]
        asked = await caller.ask("Embed", "wide", Embed(texts=texts))
        parts = [each for each in asked.messages if isinstance(each, Vectors)]
        assert len(parts) == len(asked.messages) > 1
        assert max(len(part.data) for part in parts) <= HALF
        at = 0
        for part in parts:
            assert part.first == at
            assert len(part.data) == part.n * 16384 * 4
            at += part.n
        assert at == 100
        assert [part.final for part in parts] == [False] * (len(parts) - 1) + [True]
        assert sum(part.ntokens for part in parts) == sum(map(len, texts))


async def test_a_vector_that_fits_nowhere_is_refused_with_both_sizes(tmp_path: Path) -> None:
    models = {"huge": {"kind": "embed", "dims": HALF // 4}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, models),
        calling(nats.url) as caller,
    ):
        error = await caller.refused("Embed", "huge", Embed(texts=["x"]))
        assert error.code == "bad_request"
        assert f"{HALF} bytes" in error.message
        assert f"a message holds {HALF}" in error.message


async def test_a_deadline_answers_the_caller_and_costs_no_worker(tmp_path: Path) -> None:
    models = {"mini": {"kind": "embed"}, "chat": {"kind": "generate"}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, models, config={"mini": {"slow_ms": "700"}}) as module,
        calling(nats.url) as caller,
    ):
        late = await caller.refused("Embed", "mini", Embed(texts=["x"], deadlinems=100))
        assert (late.code, late.error_class) == ("deadline_exceeded", "transient")
        assert (await caller.ask("Embed", "mini", Embed(texts=["x"]))).last.n == 1
        lane = (await caller.ask("Health", "-", Health())).last.lanes[0]
        assert "problem" not in lane
        assert "engine_crashed" not in module.log.read_text()


async def test_one_end_whatever_a_worker_does(tmp_path: Path) -> None:
    models = {"mini": {"kind": "embed"}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, models, config={"mini": {"abort_on_item": "90"}}) as _,
        calling(nats.url) as caller,
    ):
        error = await caller.refused("Embed", "mini", Embed(texts=["Z"]))
        assert error.code == "engine_crashed"
        assert error.safe_to_retry_same_request is False
        asked = await caller.ask("Embed", "mini", Embed(texts=["fine"]))
        assert asked.ends() == 1
        stamp = (await caller.ask("Health", "-", Health())).last
        assert stamp.bytesinflight == 0


async def test_a_message_that_cannot_be_read_is_answered_with_its_id(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, {"mini": {}}),
        calling(nats.url) as caller,
    ):
        subject = build("psyclone", "alpha", "caller", "mini", "Psyclone.Synapse.Embed")
        payload = msgpack.packb(
            {
                "v": 1,
                "type": "Psyclone.Synapse.Embed",
                "id": b"x" * 16,
                "created": 1,
                "from": "caller@local",
                "entries": {"texts": "not a list"},
            }
        )
        answer = await caller.bus.link.ask(subject, payload, 20)
        error = decode(answer.data).message
        assert isinstance(error, Error)
        assert (error.code, error.request) == ("bad_request", b"x" * 16)
        assert "texts" in error.message


async def test_an_id_that_is_in_work_is_refused_and_the_first_is_answered(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, {"mini": {}}, config={"mini": {"slow_ms": "500"}}),
        calling(nats.url) as caller,
    ):
        subject = build("psyclone", "alpha", "caller", "mini", "Psyclone.Synapse.Embed")
        payload = caller.bus.seal(Embed(texts=["x"])).payload
        first, second = await asyncio.gather(
            caller.bus.link.ask(subject, payload, 20), caller.bus.link.ask(subject, payload, 20)
        )
        found = sorted(type(decode(each.data).message).__name__ for each in (first, second))
        assert found == ["Error", "Vectors"]


async def test_bytes_in_flight_return_to_nothing(tmp_path: Path) -> None:
    models = {"mini": {}, "rank": {"kind": "rerank"}, "chat": {"kind": "generate"}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, models, workers=2),
        calling(nats.url) as caller,
    ):
        asked = []
        for number in range(60):
            asked.append(await caller.send("Embed", "mini", Embed(texts=[f"text {number}"] * 3)))
            asked.append(await caller.send("Rerank", "rank", Rerank(query="q", documents=["a", "b"])))
            asked.append(
                await caller.send("Generate", "chat", Generate(prompt="abc", stream=number % 2 == 0))
            )
            asked.append(await caller.send("Embed", "none", Embed(texts=["x"])))
            if number % 3 == 0:
                await caller.cancel(asked[-2])
        for each in asked:
            async with asyncio.timeout(60):
                await each.ended.wait()
        assert [each.ends() for each in asked] == [1] * len(asked)

        async def empty() -> bool:
            stamp = (await caller.ask("Health", "-", Health())).last
            return bool((stamp.bytesinflight, stamp.queued) == (0, 0))

        await eventually(empty, what="no bytes in flight")
        assert [each.ends() for each in asked] == [1] * len(asked)
