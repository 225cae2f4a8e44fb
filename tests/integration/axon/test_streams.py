"""Streams over a real socket: both framings, what goes wrong on the way, and clients that go away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field

from bakemesh.edge import Axon, HandlerRefused
from bakemesh.protocol.axon import Profile, StreamingSynapse
from bakemesh.protocol.axon.sse import Decoder
from bakemesh.protocol.axon.verdicts import Verdict
from support.axon import Gateway, Signed, gateway, signed
from support.waiting import eventually

BODIES = [Profile.SYNAPSE, Profile.BTAUTH]


class Words(StreamingSynapse):
    required_hash_fields: ClassVar = ("words",)
    words: list[str] = Field(default_factory=list)
    whole: str | None = None


class Point(BaseModel):
    x: int


class Points(StreamingSynapse):
    Item: ClassVar = Point
    required_hash_fields: ClassVar = ()


async def say(synapse: Words) -> AsyncIterator[str]:
    for word in synapse.words:
        yield word


def events(body: bytes) -> list[tuple[str, str]]:
    """Name and data of each."""
    return [(event.name, event.data.decode()) for event in Decoder().feed(body)]


async def streamed(at: Gateway, request: Signed) -> tuple[int, dict[str, str], bytes, bool]:
    """Status, headers, what came, and whether it came to its end."""
    async with at.session.post(at.url + request.path, headers=request.headers, data=request.body) as answer:
        found = b""
        try:
            async for chunk in answer.content.iter_any():
                found += chunk
        except Exception:  # noqa: BLE001 - cut off, whatever the client calls it
            return answer.status, dict(answer.headers), found, False
        return answer.status, dict(answer.headers), found, True


@pytest.mark.parametrize("profile", BODIES)
async def test_parts_are_events_and_the_end_is_one_too(profile: Profile) -> None:
    async with gateway(Axon().attach(say)) as at:
        words = ["a", "two\nlines", "", "[DONE]", "ü🦊"]
        status, headers, body, whole = await streamed(at, signed(Words(words=words), profile=profile))
        assert (status, whole) == (200, True)
        assert headers["Content-Type"].startswith("text/event-stream")
        said = [data for _, data in events(body)]
        assert said == ["a", "two\nlines", "", "[DO", "NE]", "ü🦊", "[DONE]"]
        assert body.endswith(b"data: [DONE]\n\n")
        assert ("bt_header_axon_status_code" in headers) == (profile is Profile.SYNAPSE)


async def test_for_the_sdk_the_parts_are_as_they_are() -> None:
    async with gateway(Axon().attach(say)) as at:
        status, headers, body, whole = await streamed(
            at, signed(Words(words=["hel", "lo\n", "ü"]), profile=Profile.SDK)
        )
        assert (status, body, whole) == (200, "hello\nü".encode(), True)
        assert headers["Content-Type"].startswith("text/event-stream")
        assert headers["bt_header_axon_status_code"] == "200"


async def test_parts_of_another_type_travel_as_json() -> None:
    async def points(synapse: Points) -> AsyncIterator[Point]:
        yield Point(x=1)
        yield Point(x=2)

    async with gateway(Axon().attach(points)) as at:
        _, _, body, _ = await streamed(at, signed(Points()))
        assert [json.loads(data) for _, data in events(body)[:-1]] == [{"x": 1}, {"x": 2}]


async def test_a_streaming_class_may_answer_whole() -> None:
    async def either(synapse: Words) -> Words | AsyncIterator[str]:
        if synapse.words:
            return say(synapse)
        synapse.whole = "nothing to say"
        return synapse

    async with gateway(Axon().attach(either)) as at:
        answer = await at.post(Words())
        assert answer.headers["content-type"] == "application/json"
        assert json.loads(answer.body)["whole"] == "nothing to say"
        _, _, body, _ = await streamed(at, signed(Words(words=["a"])))
        assert events(body) == [("message", "a"), ("message", "[DONE]")]


async def test_a_part_is_out_before_the_next_one_is_made() -> None:
    go = asyncio.Event()

    async def two(synapse: Words) -> AsyncIterator[str]:
        yield "first"
        await go.wait()
        yield "second"

    async with gateway(Axon().attach(two)) as at:
        request = signed(Words())
        async with at.session.post(at.url + "/Words", headers=request.headers, data=request.body) as answer:
            assert await answer.content.readuntil(b"\n\n") == b"data: first\n\n"
            go.set()
            assert await answer.content.readuntil(b"\n\n") == b"data: second\n\n"


# -- what goes wrong


@pytest.mark.parametrize("profile", Profile)
async def test_what_fails_before_the_first_part_is_an_ordinary_error(profile: Profile) -> None:
    async def busy(synapse: Words) -> AsyncIterator[str]:
        if not synapse.words:
            raise HandlerRefused(Verdict.OVERLOADED, "come again", 1)
        yield "never"

    async with gateway(Axon().attach(busy)) as at:
        answer = await at.post(Words(), profile=profile)
        assert (answer.status, answer.message) == (503, "come again")


@pytest.mark.parametrize("profile", Profile)
async def test_what_fails_on_the_way_cannot_be_taken_for_the_end(profile: Profile) -> None:
    async def fails(synapse: Words) -> AsyncIterator[str]:
        yield "half"
        raise ValueError("the secret of the house")

    async with gateway(Axon().attach(fails)) as at:
        status, _, body, whole = await streamed(at, signed(Words(), profile=profile))
        assert status == 200
        assert b"secret" not in body
        assert at.counted(verdict="failed") == 1
        if profile is Profile.SDK:
            assert (body, whole) == (b"half", False)
        else:
            assert whole
            (_, half), (name, told) = events(body)
            assert (half, name) == ("half", "error")
            assert json.loads(told)["status_code"] == 500


@pytest.mark.parametrize("part", [3, b"bytes", None])
async def test_a_part_that_is_none_is_an_error(part: Any) -> None:
    async def odd(synapse: Words) -> AsyncIterator[Any]:
        yield "a"
        yield part

    async with gateway(Axon().attach(odd)) as at:
        _, _, body, _ = await streamed(at, signed(Words()))
        assert [name for name, _ in events(body)] == ["message", "error"]


@pytest.mark.parametrize("profile", Profile)
async def test_a_deadline_ends_a_stream(profile: Profile) -> None:
    closed = asyncio.Event()

    async def endless(synapse: Words) -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with gateway(Axon().attach(endless, limit_s=0.2)) as at:
        _, _, body, whole = await streamed(at, signed(Words(), profile=profile))
        assert at.counted(verdict="timed_out") == 1
        assert closed.is_set()
        if profile is Profile.SDK:
            assert (body, whole) == (b"a", False)
        else:
            name, told = events(body)[-1]
            assert name == "error"
            assert json.loads(told)["status_code"] == 408


@pytest.mark.parametrize("profile", Profile)
async def test_a_client_that_is_gone_closes_the_generator(profile: Profile) -> None:
    closed = asyncio.Event()

    async def endless(synapse: Words) -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.Event().wait()  # it does not even try to send
        finally:
            await asyncio.sleep(0)  # what a handler does at its end may take a moment
            closed.set()

    async with gateway(Axon().attach(endless)) as at:
        reader, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(signed(Words(), profile=profile).raw())
        async with asyncio.timeout(20):
            await reader.readuntil(b"a")
            writer.transport.abort()
            await closed.wait()
        await eventually(lambda: at.state.gate.running == 0, what="the request is over")
        assert at.counted(verdict="client_gone") == 1


async def test_a_client_that_does_not_read_holds_one_part_at_a_time() -> None:
    made = 0

    async def fast(synapse: Words) -> AsyncIterator[str]:
        nonlocal made
        while True:
            made += 1
            yield "x" * 65536

    async with gateway(Axon().attach(fast, limit_s=0.5)) as at:
        reader, writer = await asyncio.open_connection(at.host, at.port, limit=1024)
        writer.write(signed(Words()).raw())
        await eventually(lambda: at.counted(verdict="timed_out") == 1, what="its time is over")
        assert made * 65536 < 32 << 20  # what the system's buffers take, and no more
        await eventually(lambda: at.state.gate.running == 0, what="the request is over")
        del reader
        writer.transport.abort()


async def test_a_generator_that_fails_when_it_is_closed_does_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def bad(synapse: Words) -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("at its end")

    async with gateway(Axon().attach(bad, limit_s=0.1)) as at:
        await streamed(at, signed(Words()))
        await eventually(lambda: at.state.gate.running == 0, what="the request is over")
        answer = await at.post(Words(words=["a"]))
        assert answer.status == 200
