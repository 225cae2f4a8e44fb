"""DataReader over an invented stream: order, duplicates, holes, purges, a hub that is late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Literal

import pytest

from bakemesh.bus.errors import NotFound, StoreUnavailable
from bakemesh.protocol.builder.messages import BakeData, BakeStatus
from bakemesh.protocol.errors import IntegrityError
from bakemesh.supervisor.data import DataReader
from bakemesh.supervisor.errors import Closed, DataLate, DataPruned
from bakemesh.supervisor.status import StatusFeed
from support.bakes import IDENTITY, chunk, status, success
from support.waiting import eventually


class Store:
    """A bake's Data stream, and whether it may still grow; `None` stands for a foreign message."""

    def __init__(self, *stored: BakeData | None, late: bool = False) -> None:
        self.stored: list[BakeData | None] = list(stored)
        self.late = late
        self.fail: list[Exception] = []
        self.news = asyncio.Event()
        self.opened: list[tuple[int, str]] = []

    async def open(
        self, start: int, end: Literal["last", "follow"]
    ) -> AsyncGenerator[tuple[BakeData | None, int]]:
        self.opened.append((start, end))
        if self.fail:
            raise self.fail.pop(0)
        sequence = start
        while True:
            while sequence <= len(self.stored):
                await asyncio.sleep(0)
                yield self.stored[sequence - 1], sequence
                sequence += 1
            if end == "last":
                return
            self.news.clear()
            await self.news.wait()

    async def is_late(self) -> bool:
        return self.late

    def add(self, *chunks: BakeData) -> None:
        self.stored += chunks
        self.news.set()


async def nothing(_start: int) -> AsyncGenerator[tuple[BakeStatus, int]]:
    for one in ():
        yield one


def reader(store: Store, feed: StatusFeed, *, late_s: float = 60) -> DataReader:
    return DataReader(feed, store.open, store.is_late, late_s=late_s)


def ended(lastseq: int) -> StatusFeed:
    feed = StatusFeed(IDENTITY.recipe_id, nothing)
    feed.offer(status(1))
    feed.offer(success(2, lastseq=lastseq))
    return feed


async def seqs(source: DataReader) -> list[int]:
    return [one.seq async for one in source]


async def test_an_ended_bake_is_read_to_its_lastseq() -> None:
    store = Store(*(chunk(seq) for seq in range(1, 6)))
    assert await seqs(reader(store, ended(5))) == [1, 2, 3, 4, 5]
    assert store.opened == [(1, "last")]


async def test_a_bake_without_output_ends_at_once() -> None:
    assert await seqs(reader(Store(), ended(0))) == []


async def test_repeats_of_the_last_and_foreign_messages_are_skipped() -> None:
    store = Store(None, chunk(1), chunk(1), None, chunk(2), chunk(2))
    assert await seqs(reader(store, ended(2))) == [1, 2]


async def test_following_ends_when_the_terminal_says_that_all_was_read() -> None:
    store, feed = Store(), StatusFeed(IDENTITY.recipe_id, nothing)
    reading = asyncio.create_task(seqs(reader(store, feed)))
    await eventually(lambda: store.opened)
    store.add(chunk(1), chunk(2))
    await asyncio.sleep(0.01)
    feed.offer(status(1))
    feed.offer(success(2, lastseq=2))
    assert await reading == [1, 2]


async def test_what_is_stored_behind_the_cut_is_read_after_the_terminal() -> None:
    store, feed = Store(), StatusFeed(IDENTITY.recipe_id, nothing)
    reading = asyncio.create_task(seqs(reader(store, feed)))
    await eventually(lambda: store.opened)
    feed.offer(status(1))
    feed.offer(success(2, lastseq=3))  # the terminal first, then what was stored before it
    store.stored += [chunk(1), chunk(2), chunk(3)]
    assert await reading == [1, 2, 3]


@pytest.mark.parametrize("holes", [(1, 3), (1, 2, 1), (1, 2, 4, 3)])
async def test_a_hole_or_a_step_back_is_an_integrity_error_for_good(holes: tuple[int, ...]) -> None:
    source = reader(Store(*(chunk(seq) for seq in holes)), ended(4))
    with pytest.raises(IntegrityError) as first:
        await seqs(source)
    with pytest.raises(IntegrityError) as second:
        await anext(source)
    assert first.value is second.value


async def test_a_running_bake_that_starts_above_one_has_a_hole() -> None:
    feed = StatusFeed(IDENTITY.recipe_id, nothing)
    with pytest.raises(IntegrityError):
        await seqs(reader(Store(chunk(2)), feed))


async def test_an_ended_bake_without_its_beginning_was_pruned() -> None:
    with pytest.raises(DataPruned, match="0 of 3"):
        await seqs(reader(Store(chunk(2), chunk(3)), ended(3)))


async def test_an_ended_bake_without_its_end_was_pruned() -> None:
    source = reader(Store(chunk(1)), ended(3))
    assert (await anext(source)).seq == 1
    with pytest.raises(DataPruned, match="1 of 3") as pruned:
        await anext(source)
    assert (pruned.value.read, pruned.value.lastseq) == (1, 3)
    with pytest.raises(DataPruned):
        await anext(source)


async def test_a_hub_that_is_late_is_waited_for() -> None:
    store = Store(chunk(1), late=True)
    reading = asyncio.create_task(seqs(reader(store, ended(3))))
    await eventually(lambda: len(store.opened) >= 3)
    store.add(chunk(2), chunk(3))
    assert await reading == [1, 2, 3]


async def test_a_hub_that_stays_late_is_an_error_of_its_own() -> None:
    with pytest.raises(DataLate, match="1 of 3"):
        await seqs(reader(Store(chunk(1), late=True), ended(3), late_s=0))


async def test_a_store_that_is_away_is_asked_again_behind_what_was_read() -> None:
    store = Store(chunk(1), chunk(2))
    source = reader(store, ended(2))
    assert (await anext(source)).seq == 1
    await source._drop_source()
    store.fail = [StoreUnavailable("CONSUMER.CREATE", "no leader")]
    assert await seqs(source) == [2]
    assert store.opened[-1] == (2, "last")


async def test_closing_the_feed_ends_a_read_that_waits() -> None:
    store, feed = Store(), StatusFeed(IDENTITY.recipe_id, nothing)
    reading = asyncio.create_task(seqs(reader(store, feed)))
    await eventually(lambda: store.opened)
    feed.close(Closed("closed"))
    with pytest.raises(Closed):
        await reading


async def test_a_closed_reader_gives_nothing_more() -> None:
    source = reader(Store(chunk(1)), ended(1))
    await source.aclose()
    await source.aclose()
    assert await seqs(source) == []


async def test_without_following_a_running_bake_ends_with_what_is_stored() -> None:
    store, feed = Store(chunk(1), chunk(2)), StatusFeed(IDENTITY.recipe_id, nothing)
    assert await seqs(DataReader(feed, store.open, store.is_late, follow=False)) == [1, 2]
    missing = Store()
    missing.fail = [NotFound("STREAM.INFO", "no such stream")]
    assert await seqs(DataReader(feed, missing.open, missing.is_late, follow=False)) == []
    with pytest.raises(DataPruned):
        await seqs(DataReader(ended(3), store.open, store.is_late, follow=False))
