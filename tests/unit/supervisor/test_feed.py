"""StatusFeed and its readers over an invented stream: no bus, no clock that matters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from bakemesh.bus.errors import AccessDenied, StoreUnavailable
from bakemesh.protocol.builder.messages import BakeStatus, Result
from bakemesh.supervisor.errors import Closed, RecipeRejected, StatusPruned
from bakemesh.supervisor.status import StatusFeed, Timing
from support.bakes import IDENTITY, status, success
from support.waiting import eventually

QUICK = Timing(quiet_s=0.02, quiet_longest_s=0.02, refusal_grace_s=0.01)


class Stream:
    """What is stored of one bake; `fail` is raised by the next readings."""

    def __init__(self, *stored: BakeStatus) -> None:
        self.stored = list(stored)
        self.fail: list[Exception] = []
        self.starts: list[int] = []

    async def replay(self, start: int) -> AsyncGenerator[tuple[BakeStatus, int]]:
        self.starts.append(start)
        if self.fail:
            raise self.fail.pop(0)
        for sequence, one in enumerate(self.stored, 1):
            if sequence >= start:
                await asyncio.sleep(0)
                yield one, sequence


def feed_of(stream: Stream, *, suspect: bool = False, timing: Timing | None = None) -> StatusFeed:
    return StatusFeed(IDENTITY.recipe_id, stream.replay, timing=timing, suspect=suspect)


async def serials(feed: StatusFeed) -> list[int]:
    return [one.serial async for one in feed.reader()]


async def test_live_messages_alone_need_no_stream() -> None:
    stream = Stream()
    feed = feed_of(stream)
    for one in (status(1), status(2), success(3)):
        feed.offer(one)
    assert await serials(feed) == [1, 2, 3]
    assert stream.starts == []


async def test_readers_are_independent_and_a_late_one_starts_at_one() -> None:
    feed = feed_of(Stream())
    feed.offer(status(1))
    first = feed.reader()
    assert (await anext(first)).serial == 1
    waiting = asyncio.gather(serials(feed), serials(feed))
    await asyncio.sleep(0)
    feed.offer(status(2))
    feed.offer(success(3))
    assert await waiting == [[1, 2, 3], [1, 2, 3]]
    assert [one.serial async for one in first] == [2, 3]
    assert await serials(feed) == [1, 2, 3]


async def test_a_gap_is_filled_from_the_stream() -> None:
    stream = Stream(status(1), status(2), status(3), success(4))
    feed = feed_of(stream)
    feed.offer(status(1))
    feed.offer(success(4))
    assert await serials(feed) == [1, 2, 3, 4]


async def test_a_gap_waits_for_a_stream_that_is_behind() -> None:
    stream = Stream(status(1))
    feed = feed_of(stream)
    feed.offer(status(1))
    feed.offer(status(3))
    reading = asyncio.create_task(serials(feed))
    await eventually(lambda: len(stream.starts) >= 2)
    stream.stored += [status(2), status(3), success(4)]
    assert await reading == [1, 2, 3, 4]


async def test_late_attach_replays_then_goes_on_live() -> None:
    stream = Stream(status(1), status(2))
    feed = feed_of(stream, suspect=True)
    reader = feed.reader()
    assert [(await anext(reader)).serial for _ in range(2)] == [1, 2]
    feed.offer(success(3))
    assert [one.serial async for one in reader] == [3]
    assert stream.starts == [1]


async def test_what_was_lost_in_a_reconnect_is_read_from_where_the_last_reading_ended() -> None:
    stream = Stream(status(1), status(2))
    feed = feed_of(stream, suspect=True)
    await feed.catch_up()
    stream.stored += [status(3), success(4)]
    feed.suspect()
    assert await serials(feed) == [1, 2, 3, 4]
    assert stream.starts == [1, 3]


async def test_a_terminal_that_never_came_live_is_found_when_it_is_quiet() -> None:
    stream = Stream(status(1), success(2))
    feed = feed_of(stream, timing=QUICK)
    feed.offer(status(1))
    async with asyncio.timeout(10):
        assert (await feed.outcome()).serial == 2


async def test_a_store_that_is_away_is_asked_again_and_a_denial_is_told() -> None:
    stream = Stream(status(1), success(2))
    stream.fail = [StoreUnavailable("STREAM.INFO", "no leader")]
    feed = feed_of(stream, suspect=True)
    assert await serials(feed) == [1, 2]
    stream.fail = [AccessDenied("publish", "$JS.API.CONSUMER.CREATE")]
    with pytest.raises(AccessDenied):
        await feed_of(stream, suspect=True).outcome()


async def test_a_reader_slower_than_the_window_reads_on_from_the_stream() -> None:
    everything = [*(status(serial) for serial in range(1, 3000)), success(3000)]
    stream = Stream(*everything)
    feed = feed_of(stream)
    reader = feed.reader()
    feed.offer(everything[0])
    assert (await anext(reader)).serial == 1
    for one in everything[1:]:
        feed.offer(one)
    assert feed.log.base > 2
    assert [one.serial async for one in reader] == list(range(2, 3001))


async def test_pruned_history_is_an_error_for_readers_and_none_for_the_outcome() -> None:
    stream = Stream(status(5), success(6))
    feed = feed_of(stream, suspect=True)
    assert (await feed.outcome()).serial == 6
    with pytest.raises(StatusPruned, match="serial 1 "):
        await serials(feed)


async def test_a_refusal_ends_readers_unless_a_terminal_comes() -> None:
    refusal = RecipeRejected(Result(verb="Recipe", accepted=False, code="draining", summary="drains"))
    feed = feed_of(Stream(), timing=QUICK)
    feed.refuse(refusal)
    with pytest.raises(RecipeRejected, match="draining"):
        await serials(feed)
    stored = feed_of(Stream(success(1)), timing=QUICK)
    stored.refuse(refusal)
    assert (await stored.outcome()).serial == 1


async def test_closing_ends_who_waits_and_what_is_here_can_still_be_read() -> None:
    feed = feed_of(Stream())
    feed.offer(status(1))
    reader = feed.reader()
    await anext(reader)
    waiting = asyncio.create_task(anext(reader))
    await asyncio.sleep(0)
    feed.close(Closed("closed"))
    with pytest.raises(Closed):
        await waiting
    assert (await anext(feed.reader())).serial == 1


async def test_a_cancelled_reading_leaves_the_feed_doubtful_for_the_next() -> None:
    stream = Stream(status(1), success(2))
    feed = feed_of(stream, suspect=True)
    first = asyncio.create_task(serials(feed))
    await eventually(lambda: stream.starts)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert await serials(feed) == [1, 2]


async def test_a_closed_reader_gives_nothing_more() -> None:
    feed = feed_of(Stream())
    feed.offer(status(1))
    reader = feed.reader()
    await reader.aclose()
    await reader.aclose()
    assert [one async for one in reader] == []


async def test_a_quiet_stream_is_counted_and_read_only_when_it_holds_more() -> None:
    stream = Stream(status(1))
    counted: list[int] = []

    async def count() -> int:
        counted.append(len(stream.stored))
        return counted[-1]

    feed = StatusFeed(IDENTITY.recipe_id, stream.replay, count, timing=QUICK)
    feed.offer(status(1))
    ending = asyncio.create_task(feed.outcome())
    await eventually(lambda: len(counted) >= 4)
    assert len(stream.starts) == 1
    stream.stored.append(success(2))
    assert (await ending).serial == 2
    assert len(stream.starts) == 2
