"""The writer on a real server: order without a hole or a repeat, whatever happens to server, store and
stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from bakemesh.bus import Bus
from bakemesh.bus.errors import MessageTooLarge
from bakemesh.bus.reader import read
from bakemesh.bus.window import Foreign, Note, Purged
from bakemesh.bus.writer import Outgoing, StreamWriter
from support.nats import connect, server
from support.waiting import eventually

STREAM = "rows"


async def make_stream(bus: Bus, max_bytes: int = 2**30) -> None:
    await bus.api.create_stream(
        {"name": STREAM, "subjects": ["row.>"], "storage": "file", "discard": "new", "max_bytes": max_bytes}
    )


@asynccontextmanager
async def writing(bus: Bus, after: int | None = 0, **settings: object) -> AsyncIterator[StreamWriter]:
    writer = StreamWriter(bus, STREAM, **settings)  # type: ignore[arg-type]
    await writer.start(after=after)
    try:
        yield writer
    finally:
        await writer.close()


def row(number: int, size: int = 100, subject: str = "row.a") -> Outgoing:
    return Outgoing(subject, f"id-{number}", b"%d " % number + bytes(size))


async def stored(bus: Bus) -> list[tuple[int, str]]:
    """Everything in the stream: sequence and id ("" for a foreign one)."""
    async with aclosing(read(bus, STREAM, "row.>", end="last")) as messages:
        return [(one.sequence, one.headers.get("Nats-Msg-Id", "")) async for one in messages]


async def put_all(writer: StreamWriter, rows: list[Outgoing]) -> list[asyncio.Future[int]]:
    return [await writer.put(one) for one in rows]


async def test_rows_are_stored_in_order_and_futures_give_their_sequences(tmp_path: Path) -> None:
    batches: list[int] = []
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        async with writing(bus, stored=lambda batch: batches.append(len(batch))) as writer:
            futures = await put_all(writer, [row(number) for number in range(3000)])
            assert await asyncio.gather(*futures) == list(range(1, 3001))
            assert writer.depth == 0
        assert [name for _, name in await stored(bus)] == [f"id-{number}" for number in range(3000)]
        assert sum(batches) == 3000
        assert len(batches) < 1500, "acknowledgements are handed on in batches"


@pytest.mark.timeout(180)
async def test_a_killed_server_in_mid_stream_leaves_neither_hole_nor_repeat(tmp_path: Path) -> None:
    count = 20_000
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        async with writing(bus) as writer:
            futures: list[asyncio.Future[int]] = []

            async def put() -> None:
                for number in range(count):
                    futures.append(await writer.put(row(number)))  # noqa: PERF401 - looked at meanwhile

            putting = asyncio.create_task(put())
            for part in (1, 2, 3):
                await eventually(lambda part=part: len(futures) > part * count // 4, what="a quarter more")  # type: ignore[misc]
                await nats.kill()
                await nats.start()
            await putting
            sequences = await asyncio.gather(*futures)
        found = await stored(bus)
        assert [name for _, name in found] == [f"id-{number}" for number in range(count)]
        assert sequences == [sequence for sequence, _ in found]


async def test_a_full_store_is_waited_out_in_order(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus, max_bytes=200_000)
        async with writing(bus, messages=64) as writer:
            futures: list[asyncio.Future[int]] = []

            async def put() -> None:
                for number in range(600):
                    futures.append(await writer.put(row(number, size=1000)))  # noqa: PERF401

            putting = asyncio.create_task(put())
            await eventually(lambda: writer.full, what="full")
            seen = await stored(bus)
            assert [name for _, name in seen] == [f"id-{number}" for number in range(len(seen))]
            assert not putting.done()
            while not putting.done() or writer.depth:
                # Room is made again and again, as a purge of old bakes makes it.
                seen += [one for one in await stored(bus) if one[0] > seen[-1][0]]
                await bus.api.purge_stream(STREAM, before=seen[-1][0] + 1)
                await asyncio.sleep(0)
            seen += [one for one in await stored(bus) if one[0] > seen[-1][0]]
            assert [name for _, name in seen] == [f"id-{number}" for number in range(600)]
            assert not writer.full


async def test_rows_can_be_taken_back_from_a_full_store(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus, max_bytes=50_000)
        async with writing(bus, messages=16) as writer:
            futures: list[asyncio.Future[int]] = []

            async def put() -> None:
                for number in range(100):
                    name = "row.big" if number < 90 else "row.small"
                    futures.append(await writer.put(row(number, 1000 if number < 90 else 1, name)))

            putting = asyncio.create_task(put())
            await eventually(lambda: writer.full, what="full")
            while not putting.done() or any(one.subject == "row.big" for one in writer.waiting()):
                await writer.discard(lambda out: out.subject == "row.big")
            found = await stored(bus)
            await bus.api.purge_stream(STREAM, before=6)
            sequences = [None if one.cancelled() else await one for one in futures]
            found += [one for one in await stored(bus) if one[0] > found[-1][0]]
            assert [f"id-{at}" for at, one in enumerate(sequences) if one is not None] == [
                n for _, n in found
            ]
            assert sequences[90:] == [one for one, _ in found][-10:]
            assert None in sequences


async def test_foreign_messages_are_passed_over_and_told(tmp_path: Path) -> None:
    notes: list[Note] = []
    async with server(tmp_path) as nats, connect(nats.url) as bus, connect(nats.url, name="other") as other:
        await make_stream(bus)
        async with writing(bus, noted=notes.append) as writer:

            async def intrude() -> None:
                for _ in range(30):
                    await other.link.send("row.foreign", b"smuggled")
                    await asyncio.sleep(0)

            futures, _ = await asyncio.gather(put_all(writer, [row(n) for n in range(4000)]), intrude())
            await asyncio.gather(*futures)
            await other.link.barrier()
            last = await writer.put(row(4000))
            await last
            found = await stored(bus)
            ours = [name for _, name in found if name]
            assert ours == [f"id-{number}" for number in range(4001)]
            assert writer.foreign == 30
            assert [note.sequence for note in notes if isinstance(note, Foreign)] == [
                sequence for sequence, name in found if not name
            ]


async def test_foreign_messages_leave_a_writer_without_rows_at_rest(tmp_path: Path) -> None:
    """After a broken link it asks the stream and finds what is not its own. With no row to compare it waits,
    and keeps nobody else from running.
    """
    async with server(tmp_path) as nats, connect(nats.url) as bus, connect(nats.url, name="other") as other:
        await make_stream(bus)
        async with writing(bus) as writer:
            assert await (await writer.put(row(1))) == 1
            await other.link.send("row.foreign", b"smuggled")
            await other.link.barrier()
            await nats.restart()
            await eventually(lambda: bus.connected, what="the link up again")
            for _ in range(50):  # the answers of its survey come in between
                await bus.api.request(f"STREAM.INFO.{STREAM}", timeout=5)
            assert await (await writer.put(row(2))) == 3
            assert writer.foreign == 1


@pytest.mark.parametrize("journaled", [0, 1, 17, 150, 299, 300])
async def test_a_restart_at_any_point_recognises_its_rows(tmp_path: Path, journaled: int) -> None:
    """300 rows stored, of which the journal has heard of `journaled`; a message of somebody else in
    between.
    """
    rows = [row(number) for number in range(320)]
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        async with writing(bus) as writer:
            first = await asyncio.gather(*await put_all(writer, rows[:200]))
            await bus.link.send("row.foreign", b"")
            await bus.link.barrier()
            first += await asyncio.gather(*await put_all(writer, rows[200:300]))
        async with writing(bus, after=first[journaled - 1] if journaled else 0) as writer:
            second = await asyncio.gather(*await put_all(writer, rows[journaled:]))
        assert first[:journaled] + second == [sequence for sequence, name in await stored(bus) if name]
        assert [name for _, name in await stored(bus) if name] == [one.msg_id for one in rows]


async def test_a_writer_that_died_in_mid_stream_is_followed_by_another(tmp_path: Path) -> None:
    rows = [row(number) for number in range(2000)]
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        resolved: list[int] = []
        for turn in range(6):
            async with writing(bus, after=resolved[-1] if resolved else 0) as writer:
                futures = await put_all(writer, rows[len(resolved) : 300 * (turn + 1)])
                # What has been heard of up to here is all that the next one knows.
                await futures[len(futures) // 2]
                resolved += [one.result() for one in futures if one.done()]
        async with writing(bus, after=resolved[-1]) as writer:
            resolved += await asyncio.gather(*await put_all(writer, rows[len(resolved) :]))
        found = await stored(bus)
        assert [name for _, name in found] == [one.msg_id for one in rows]
        assert resolved == [sequence for sequence, _ in found]


async def test_rows_purged_before_they_were_acknowledged_count_as_stored(tmp_path: Path) -> None:
    notes: list[Note] = []
    rows = [row(number) for number in range(40)]
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        async with writing(bus) as writer:
            await asyncio.gather(*await put_all(writer, rows[:30]))
        await bus.api.purge_stream(STREAM)
        await nats.kill()
        await nats.start()
        async with writing(bus, after=10, noted=notes.append) as writer:
            sequences = await asyncio.gather(*await put_all(writer, rows[10:]))
        assert sequences == list(range(11, 41))
        assert [name for _, name in await stored(bus)] == [one.msg_id for one in rows[30:]]
        assert notes == [Purged(11, 30)]


async def test_taking_back_waits_for_the_bus_and_gives_back_what_is_not_stored(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        async with writing(bus) as writer:
            await asyncio.gather(*await put_all(writer, [row(number) for number in range(10)]))
            futures = await put_all(writer, [row(number) for number in range(10, 60)])
            await nats.kill()
            taking = asyncio.create_task(writer.discard(lambda out: True))
            await eventually(lambda: not bus.connected, what="the link down")
            assert not taking.done()
            await nats.start()
            back = {one.msg_id for one in await taking}
            assert back == {f"id-{10 + at}" for at, one in enumerate(futures) if one.cancelled()}
            await (await writer.put(row(60)))
            expected = [f"id-{number}" for number in range(61) if f"id-{number}" not in back]
            assert [name for _, name in await stored(bus)] == expected


async def test_a_row_that_no_server_takes_fails_alone(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        async with writing(bus) as writer:
            sizes = {0: 10, 1: bus.max_payload + 1, 2: bus.max_payload - 1100, 3: bus.max_payload - 10, 4: 10}
            futures = await put_all(writer, [row(number, size) for number, size in sizes.items()])
            assert [await futures[0], await futures[2], await futures[4]] == [1, 2, 3]
            for number in (1, 3):  # the server counts the headers too, and would close the connection
                with pytest.raises(MessageTooLarge, match=str(bus.max_payload - 1024)):
                    await futures[number]


@pytest.mark.parametrize(
    "bad", [("row a", "id"), ("row.a", "i d"), ("row.a\r\nPUB x", "id"), ("", "id"), ("row.a", "")]
)
def test_a_subject_or_id_that_cannot_travel_is_refused(bad: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="must not be empty or hold blanks"):
        Outgoing(*bad, b"")


async def test_without_memory_it_goes_on_behind_what_is_there(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        await make_stream(bus)
        async with writing(bus) as writer:
            await asyncio.gather(*await put_all(writer, [row(number) for number in range(50)]))
        async with writing(bus, after=None) as writer:
            assert await (await writer.put(row(50))) == 51
            assert writer.foreign == 0


async def test_a_stream_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus, writing(bus) as writer:
        future = await writer.put(row(0))
        assert not future.done()
        await make_stream(bus)
        assert await future == 1


async def test_closing_cancels_what_is_not_stored_and_whoever_waits_for_room(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus, writing(bus, messages=2) as writer:
        futures = await put_all(writer, [row(0), row(1)])
        waiting = asyncio.create_task(writer.put(row(2)))
        await eventually(lambda: writer.depth == 3, what="a row that waits for room")
        await writer.close()
        assert all(one.cancelled() for one in [*futures, await waiting])
