"""Reading on a real server: everything behind the filter, in order, once, across what breaks."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from bakemesh.bus import Bus
from bakemesh.bus.errors import NotFound
from bakemesh.bus.reader import read
from bakemesh.bus.writer import Outgoing, StreamWriter
from support.nats import connect, server
from support.waiting import eventually

STREAM = "rows"


async def make_stream(bus: Bus) -> None:
    await bus.api.create_stream(
        {"name": STREAM, "subjects": ["row.>"], "storage": "file", "discard": "new", "max_bytes": 2**30}
    )


async def fill(bus: Bus, first: int, count: int, *, size: int = 10, subject: str = "row.a") -> None:
    """Stores `count` rows whose payload begins with their number."""
    writer = StreamWriter(bus, STREAM)
    await writer.start(after=None)
    futures = [
        await writer.put(Outgoing(subject, f"{subject}-{number}", b"%d " % number + bytes(size)))
        for number in range(first, first + count)
    ]
    await asyncio.gather(*futures)
    await writer.close()


def number(payload: bytes) -> int:
    return int(payload.split(b" ", 1)[0])


async def test_what_is_stored_is_read_once_in_order_and_the_end_is_the_end(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        await fill(bus, 0, 3000)
        await fill(bus, 0, 5, subject="row.b")
        async with aclosing(read(bus, STREAM, "row.a", end="last")) as messages:
            found = [one async for one in messages]
        assert [number(one.payload) for one in found] == list(range(3000))
        assert [one.sequence for one in found] == list(range(1, 3001))
        assert found[7].subject == "row.a"
        assert found[7].headers["Nats-Msg-Id"] == "row.a-7"
        async with aclosing(read(bus, STREAM, "row.b", start_sequence=3002, end="last")) as messages:
            assert [number(one.payload) async for one in messages] == [1, 2, 3, 4]
        async with aclosing(read(bus, STREAM, "row.none", end="last")) as messages:
            assert [one async for one in messages] == []
        async with aclosing(read(bus, STREAM, "row.a", start_sequence=9000, end="last")) as messages:
            assert [one async for one in messages] == []


async def test_the_end_is_what_was_stored_at_the_start(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        await fill(bus, 0, 2000)
        found: list[int] = []
        async with aclosing(read(bus, STREAM, "row.a", end="last")) as messages:
            async for one in messages:
                if not found:
                    await fill(bus, 2000, 500)
                found.append(number(one.payload))
        assert found == list(range(2000))


async def test_following_hears_of_each_message_and_survives_a_killed_server(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        found: list[int] = []

        async def follow() -> None:
            async with aclosing(read(bus, STREAM, "row.a")) as messages:
                async for one in messages:
                    found.append(number(one.payload))  # noqa: PERF401 - looked at meanwhile

        following = asyncio.create_task(follow())
        try:
            for turn in range(3):
                await fill(bus, turn * 1000, 1000)
                await eventually(lambda turn=turn: len(found) > turn * 1000, what="some of it read")  # type: ignore[misc]
                await nats.kill()
                await nats.start()
            await fill(bus, 3000, 10)
            await eventually(lambda: len(found) >= 3010, what="all read")
            assert found == list(range(3010))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def test_a_consumer_that_vanishes_is_made_again(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        await fill(bus, 0, 100)
        found: list[int] = []

        async def follow() -> None:
            async with aclosing(read(bus, STREAM, "row.a")) as messages:
                async for one in messages:
                    found.append(number(one.payload))  # noqa: PERF401 - looked at meanwhile

        following = asyncio.create_task(follow())
        try:
            await eventually(lambda: len(found) == 100, what="read so far")
            for consumer in (await bus.api.request(f"CONSUMER.NAMES.{STREAM}"))["consumers"]:
                await bus.api.delete_consumer(STREAM, consumer)
            await fill(bus, 100, 100)
            await eventually(lambda: len(found) >= 200, what="all read")
            assert found == list(range(200))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def test_a_slow_reader_holds_back_a_bounded_part(tmp_path: Path) -> None:
    size, count = 100_000, 400
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        await fill(bus, 0, count, size=size)
        async with connect(nats.url, name="slow") as slow:
            async with aclosing(read(slow, STREAM, "row.a", batch_bytes=1)) as messages:
                first = await anext(messages)
                assert number(first.payload) == 0
                # Nothing more is asked for than what one request takes, twice, while the reader does not
                # come back.
                limit = 2 * (slow.max_payload + 2**16)
                received = slow.link._client.stats
                await eventually(lambda: received["in_bytes"] > limit // 3, what="some fetched ahead")
                await slow.link.barrier()
                assert received["in_bytes"] <= limit + 2**20
                rest = [number(one.payload) for one in [await anext(messages) for _ in range(count - 1)]]
            assert rest == list(range(1, count))


async def test_a_reader_whose_loop_was_blocked_misses_nothing(tmp_path: Path) -> None:
    """As with a process that was stopped: the server drops its connection, and the reader goes on by
    itself.
    """
    async with (
        server(tmp_path) as nats,
        connect(nats.url) as bus,
        connect(nats.url, name="stopped") as reader,
    ):
        await make_stream(bus)
        await fill(bus, 0, 2000)
        found: list[int] = []
        async with aclosing(read(reader, STREAM, "row.a")) as messages:
            async for one in messages:
                found.append(number(one.payload))
                if len(found) == 1500:
                    reader.link._client._transport._io_writer.transport.abort()  # type: ignore[union-attr]
                    await fill(bus, 2000, 1000)
                if len(found) == 3000:
                    break
        assert found == list(range(3000))


async def test_messages_larger_than_the_request_come_too(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        await fill(bus, 0, 5, size=7 * 2**20)
        async with aclosing(read(bus, STREAM, "row.a", end="last", batch_bytes=1000)) as messages:
            assert [number(one.payload) async for one in messages] == list(range(5))


async def test_a_stream_that_does_not_exist_is_said(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        for end in ("last", "follow"):
            with pytest.raises(NotFound, match="stream not found"):
                async with aclosing(read(bus, "nothing", "row.a", end=end)) as messages:
                    await anext(messages)


async def test_purged_messages_are_passed_over(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        await fill(bus, 0, 100)
        await bus.api.purge_stream(STREAM, before=51)
        async with aclosing(read(bus, STREAM, "row.a", end="last")) as messages:
            assert [number(one.payload) async for one in messages] == list(range(50, 100))
        await bus.api.purge_stream(STREAM)
        async with aclosing(read(bus, STREAM, "row.a", end="last")) as messages:
            assert [one async for one in messages] == []
