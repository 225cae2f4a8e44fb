"""Answers in parts: as they come, to their end, and what it is called when they do not."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from bakemesh.dendrite import CallFailed, Dendrite, Stream
from bakemesh.protocol.axon import Profile, StreamingSynapse
from bakemesh.protocol.axon.sse import DONE_EVENT, encode
from support.rawaxon import Answer, Asked, http, raw_axon
from support.recorded import BOB
from support.waiting import eventually

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"bt_header_axon_status_code: 200\r\nbt_header_axon_status_message: Success\r\n"
)
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


class Tok(StreamingSynapse):
    required_hash_fields: ClassVar = ("prompt",)
    prompt: str = ""


class Token(BaseModel):
    text: str


class Tokens(StreamingSynapse):
    Item: ClassVar = Token
    prompt: str = ""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n"


def chunked(*parts: bytes) -> bytes:
    return CHUNKED + b"".join(chunk(part) for part in parts) + END


async def parts(
    answer: Answer, profile: Profile = Profile.SYNAPSE, cls: type[StreamingSynapse] = Tok, **options: Any
) -> tuple[list[Any], Stream, CallFailed | None]:
    found = []
    async with raw_axon(answer) as axon, Dendrite(BOB, profile=profile, largest_answer=100_000) as dendrite:
        stream = dendrite.stream(axon.target, cls(prompt="q"), **options)
        try:
            async for part in stream:
                found += [part]
        except CallFailed as error:
            return found, stream, error
    return found, stream, None


@pytest.mark.parametrize("profile", [Profile.SYNAPSE, Profile.BTAUTH])
async def test_events_are_parts_until_done(profile: Profile) -> None:
    texts = ["hel", "lo\nwor", "ld ", "[DONE]", "héé", ""]
    answer = chunked(*(encode(text) for text in texts), DONE_EVENT, encode("not seen"))
    found, stream, failed = await parts(answer, profile)

    assert failed is None
    assert found == ["hel", "lo\nwor", "ld ", "[DO", "NE]", "héé", ""]
    assert stream.synapse.is_success
    assert stream.synapse.dendrite.process_time is not None


async def test_events_may_be_cut_anywhere() -> None:
    raw = b"".join(encode(text) for text in ("hél", "lo\nwor")) + DONE_EVENT
    found, _, failed = await parts(chunked(*(bytes([byte]) for byte in raw)))

    assert failed is None
    assert found == ["hél", "lo\nwor"]


async def test_parts_may_have_a_type() -> None:
    answer = chunked(encode('{"text":"a"}'), encode('{"text":"b"}'), DONE_EVENT)
    found, _, failed = await parts(answer, cls=Tokens)

    assert failed is None
    assert found == [Token(text="a"), Token(text="b")]


async def test_in_the_sdk_profile_a_part_is_what_was_sent_at_once() -> None:
    async def pieces(asked: Asked, writer: asyncio.StreamWriter) -> None:
        raw = chunked("hél".encode(), b"lo", b"data: x\n\n")
        for at in range(0, len(raw), 3):
            writer.write(raw[at : at + 3])
            await writer.drain()

    found, stream, failed = await parts(pieces, Profile.SDK)

    assert failed is None
    assert found == ["hél", "lo", "data: x\n\n"]
    assert stream.synapse.is_success


async def test_a_character_that_a_proxy_cut_is_put_together() -> None:
    raw = "héé".encode()
    found, _, failed = await parts(chunked(raw[:2], raw[2:4], raw[4:]), Profile.SDK)

    assert failed is None
    assert "".join(found) == "héé"


async def test_an_axon_without_chunks_is_read_to_its_end() -> None:
    found, _, failed = await parts(HEAD + b"\r\nhello", Profile.SDK)

    assert failed is None
    assert "".join(found) == "hello"


async def test_a_part_comes_before_the_next_one_is_there() -> None:
    more = asyncio.Event()

    async def slowly(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + chunk(encode("one")))
        await more.wait()
        writer.write(chunk(encode("two")) + chunk(DONE_EVENT) + END)

    async with raw_axon(slowly) as axon, Dendrite(BOB) as dendrite:
        stream = dendrite.stream(axon.target, Tok())
        assert await anext(stream) == "one"
        more.set()
        assert [part async for part in stream] == ["two"]


@pytest.mark.parametrize(
    ("answer", "profile", "given", "status", "told"),
    [
        (chunked(encode("a")), Profile.SYNAPSE, ["a"], 400, r"without \[DONE\]"),
        (chunked(encode("a"), b"data: b"), Profile.SYNAPSE, ["a"], 400, r"without \[DONE\]"),
        (CHUNKED + chunk(encode("a")), Profile.SYNAPSE, ["a"], 400, "broke off"),
        (CHUNKED + chunk(b"a"), Profile.SDK, ["a"], 400, "broke off"),
        (chunked(encode("a"), encode("it fell", "error")), Profile.SYNAPSE, ["a"], 500, "it fell"),
        (
            chunked(encode("a"), encode('{"message":"no room","status_code":503}', "error")),
            Profile.SYNAPSE,
            ["a"],
            503,
            "no room",
        ),
        (chunked(encode('{"message":"x","status_code":200}', "error")), Profile.SYNAPSE, [], 500, "x"),
        (chunked(b"data: \xff\n\n"), Profile.SYNAPSE, [], 422, "not UTF-8"),
        (chunked(b"data: " + b"x" * 200_000), Profile.SYNAPSE, [], 422, "larger than"),
        (chunked(b"x" * 200_000), Profile.SDK, [], 422, "larger than"),
        (chunked(b"\xff\xff"), Profile.SDK, [], 422, "not UTF-8"),
        (http(b'{"prompt":"q"}', "bt_header_axon_status_code: 200"), Profile.SYNAPSE, [], 422, "whole"),
        (http(b'{"message":"no"}', status="403 Forbidden"), Profile.SYNAPSE, [], 403, "no"),
        (http(b"{}", status="500 Oh"), Profile.SDK, [], 500, "said no more"),
        (http(b"oh", status="500 Oh", kind="text/plain"), Profile.SDK, [], 422, "not JSON"),
        (b"", Profile.SYNAPSE, [], 503, "disconnected"),
    ],
)
async def test_a_stream_that_fails_says_how(
    answer: bytes, profile: Profile, given: list[str], status: int, told: str
) -> None:
    found, stream, failed = await parts(answer, profile)

    assert found == given
    assert failed is not None
    assert failed.status_code == status
    with pytest.raises(CallFailed, match=told):
        raise failed
    assert stream.synapse.dendrite.status_code == status
    assert not stream.synapse.is_success
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


@pytest.mark.parametrize("profile", [Profile.SYNAPSE, Profile.SDK])
async def test_the_deadline_ends_a_stream(profile: Profile) -> None:
    async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        while True:
            writer.write(chunk(encode("t")))
            await writer.drain()
            await asyncio.sleep(0.01)

    found, stream, failed = await parts(endless, profile, timeout=1.5)

    assert found
    assert failed is not None
    assert failed.status_code == 408
    assert stream.synapse.is_timeout


async def test_leaving_a_stream_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        try:
            while True:
                writer.write(chunk(encode("t" * 1000)))
                await writer.drain()
        except ConnectionError:
            gone.set()
            raise

    async with raw_axon(endless) as axon, Dendrite(BOB) as dendrite:
        async with dendrite.stream(axon.target, Tok()) as stream:
            assert await anext(stream)
        async with asyncio.timeout(10):
            await gone.wait()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_a_consumer_that_is_cancelled_closes_its_connection() -> None:
    async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)

    async with raw_axon(silent, keep=True) as axon, Dendrite(BOB) as dendrite:
        stream = dendrite.stream(axon.target, Tok(), timeout=60)
        task = asyncio.ensure_future(anext(stream))
        await eventually(lambda: axon.asked, what="the request")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: axon.gone == 1, what="the closing of the connection")


async def test_a_lane_is_free_again_after_a_stream() -> None:
    async with (
        raw_axon(chunked(b"a"), keep=True) as axon,
        Dendrite(BOB, profile=Profile.SDK, connections_an_axon=1) as dendrite,
    ):
        for _ in range(3):
            async with dendrite.stream(axon.target, Tok(), timeout=5) as stream:
                assert await anext(stream) == "a"
