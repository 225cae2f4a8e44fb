"""Streams: signs of life, taking back, and callers that are gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bakemesh.protocol.inference.answers import Alive, Text, Token
from bakemesh.protocol.inference.requests import Embed, Generate, Health
from support.nats import server
from support.synapse import Caller, calling, synapse
from support.waiting import eventually

MODELS = {"chat": {"kind": "generate"}, "mini": {"kind": "embed"}}
ENDLESS = {"chat": {"endless": "yes", "slow_ms": "20"}}


async def nothing_left(caller: Caller) -> bool:
    stamp = (await caller.ask("Health", "-", Health())).last
    return bool((stamp.bytesinflight, stamp.queued) == (0, 0) and stamp.lanes[0]["idle"])


async def test_a_stream_that_says_nothing_is_alive_every_second(tmp_path: Path) -> None:
    config = {"chat": {"slow_ms": "2500"}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, config=config),
        calling(nats.url) as caller,
    ):
        asked = await caller.ask("Generate", "chat", Generate(prompt="ab", stream=True))
        first = next(at for at, each in enumerate(asked.messages) if isinstance(each, Token))
        signs = asked.messages[:first]
        assert len(signs) >= 2
        assert all(isinstance(each, Alive) for each in signs)
        assert {each.state for each in signs if isinstance(each, Alive)} <= {"queued", "loading"}
        between = [each for each in asked.messages[first:] if isinstance(each, Alive)]
        assert between
        assert {each.state for each in between} == {"running"}
        assert asked.last.text == "97 98 "


async def test_a_stream_that_waits_for_its_turn_is_alive_too(tmp_path: Path) -> None:
    config = {"mini": {"slow_ms": "2500"}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, config=config),
        calling(nats.url) as caller,
    ):
        before = await caller.send("Embed", "mini", Embed(texts=["x"]))
        asked = await caller.ask("Generate", "chat", Generate(prompt="ab", stream=True))
        assert isinstance(asked.messages[0], Alive)
        assert before.ends() == 1


async def test_a_cancelled_stream_ends_with_what_there_is(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, config=ENDLESS),
        calling(nats.url) as caller,
    ):
        asked = await caller.send("Generate", "chat", Generate(prompt="ab", maxtokens=100_000, stream=True))
        await eventually(lambda: len(asked.got) > 3, what="tokens")
        await caller.cancel(asked)
        async with asyncio.timeout(20):
            await asked.ended.wait()
        assert isinstance(asked.last, Text)
        assert asked.last.finishreason == "cancelled"
        tokens = [each for each in asked.messages if isinstance(each, Token)]
        assert asked.last.text == "".join(each.text for each in tokens)
        await eventually(lambda: nothing_left(caller), what="an idle module")
        assert asked.ends() == 1


async def test_a_whole_text_can_be_taken_back_too_and_only_by_its_caller(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, config=ENDLESS),
        calling(nats.url) as caller,
        calling(nats.url, name="other") as other,
    ):
        asked = await caller.send("Generate", "chat", Generate(prompt="ab", maxtokens=100_000))
        stranger = await other.send("Generate", "chat", Generate(prompt="ab", maxtokens=100_000, stream=True))
        stranger.id = asked.id
        await other.cancel(stranger)  # another's request id under its own name
        queued = await caller.send("Embed", "mini", Embed(texts=["x"]))
        await caller.cancel(queued)
        async with asyncio.timeout(20):
            await queued.ended.wait()
        assert queued.last.code == "cancelled"
        assert not asked.ended.is_set()
        await caller.cancel(asked)
        async with asyncio.timeout(20):
            await asked.ended.wait()
        assert (asked.ends(), queued.ends()) == (1, 1)


async def test_the_work_of_a_caller_that_is_gone_ends(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, config=ENDLESS),
        calling(nats.url) as watcher,
    ):
        async with calling(nats.url, name="goes") as caller:
            asked = await caller.send(
                "Generate", "chat", Generate(prompt="ab", maxtokens=1_000_000, stream=True)
            )
            await eventually(lambda: len(asked.got) > 3, what="tokens")
            assert not await nothing_left(watcher)
        await eventually(lambda: nothing_left(watcher), what="the stream of nobody ended")


async def test_a_caller_that_is_gone_before_the_first_token_is_noticed(tmp_path: Path) -> None:
    config = {"chat": {"slow_ms": "60000"}}
    async with (
        server(tmp_path) as nats,
        synapse(tmp_path, nats.url, MODELS, config=config),
        calling(nats.url) as watcher,
    ):
        async with calling(nats.url, name="goes") as caller:
            await caller.send("Generate", "chat", Generate(prompt="ab", stream=True))

            async def begun() -> bool:
                return not await nothing_left(watcher)

            await eventually(begun, what="the request's begin")
        await eventually(lambda: nothing_left(watcher), what="the stream of nobody ended")
