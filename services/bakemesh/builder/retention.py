"""What is purged, and when: pure rules, and the shell that carries them out.

Data: where the node's data stream is 80 % full, that of bakes that ended goes, oldest first, until it is
below; running bakes never. Status: seven days after the end of its bake; where the status stream is 80 % full
sooner, by the same order: first all but the terminals of ended bakes, then ended bakes as a whole, then the
older half of what is left, which is that of bakes that go on. On a leaf only what the hub has (`hubcopy`);
a bake of which that cannot be known waits, and holds up no other. With its Status a bake's controls go, and
after seven days the Results that were kept for messages that come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bakemesh.builder.clock import Clock
from bakemesh.builder.hubcopy import HubCopy
from bakemesh.builder.journal import Journal
from bakemesh.builder.journal.records import Db
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.purge import purge_subject
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeData
from bakemesh.protocol.subjects import BAKE

log = logging.getLogger(__name__)
FULL_AT = 0.8
STATUS_DAYS = 7
DAY_US = 86_400 * 1_000_000
EVERY_S = 5.0
BATCH = 64
ANSWERS_AT_ONCE = 5000
NEWEST = 1000  # so many Status messages always stay: some may not be acknowledged yet

# Bits of `bakes.purged`.
DATA_GONE, ALL_GONE, TRIMMED = 1, 2, 4
# A bake's Status beside its terminal.
INTERIM = ("Status", "Paused", "Restarted")


@dataclass(frozen=True, slots=True)
class Fill:
    """How full a stream is, bytes; `limit` 0 or less: unlimited."""

    used: int
    limit: int

    @property
    def over(self) -> bool:
        """Whether something has to go."""
        return self.limit > 0 and self.used >= self.limit * FULL_AT


def status_due(ended: int, now: int) -> bool:
    """Whether the Status of a bake that ended then is to go. µs since the epoch; a clock set back keeps."""
    return now - ended >= STATUS_DAYS * DAY_US


class Past(NamedTuple):
    """A bake that has ended, and what of it is gone."""

    bake: int
    party: str
    key: str
    ended: int
    purged: int


class Retention:
    """Purges one node's streams and removes the folders of bakes that are past keeping."""

    def __init__(self, bus: Bus, journal: Journal, node_id: str, folder: Path, clock: Clock) -> None:
        self.bus, self.journal, self.node_id = bus, journal, node_id
        self.folder, self.clock = folder, clock
        self.copy = HubCopy(bus, node_id)
        self.data_stream = storage.data_stream(bus.mesh, node_id)
        self.status_stream = storage.status_stream(bus.mesh, node_id)

    async def run(self) -> None:
        """Looks every few seconds, for ever."""
        while True:
            try:
                await self.round()
            except BusError as error:
                log.info("retention: %s", error)
            await asyncio.sleep(EVERY_S)

    async def round(self) -> None:
        """One look at both streams."""
        self.copy.forget()
        await self._forget_answers()
        await self._make_room(self.data_stream, self._purge_data())
        async for _ in self._purge_bakes(self.clock.wall() - STATUS_DAYS * DAY_US):
            pass
        await self._make_room(self.status_stream, self._trim(), self._purge_bakes(), self._halve())

    async def _make_room(self, stream: str, *purges: AsyncGenerator[None]) -> None:
        """Lets one purge after the other go on, a piece at a time, until the stream is below."""
        for purge in purges:
            async with contextlib.aclosing(purge):
                while await self._full(stream):
                    try:
                        await anext(purge)
                    except StopAsyncIteration:
                        break

    async def _full(self, stream: str) -> bool:
        info = await self.bus.api.stream_info(stream)
        return Fill(int(info["state"]["bytes"]), int(info["config"].get("max_bytes", 0))).over

    def _ended(self, without: int, until: int | None = None) -> Iterator[Past]:
        """Bakes that ended (by then), oldest first, of which nothing in `without` is gone."""
        last, until = (0, 0), 2**63 - 1 if until is None else until
        while True:
            rows = self.journal.db.execute(
                "SELECT bake, party, key, ended, purged FROM bakes"
                " WHERE ended IS NOT NULL AND (purged & 2) = 0 AND (purged & ?) = 0"
                " AND (ended, bake) > (?, ?) AND ended <= ? ORDER BY ended, bake LIMIT ?",
                (without, *last, until, BATCH),
            ).fetchall()
            for row in rows:
                past = Past(*row)
                last = (past.ended, past.bake)
                yield past
            if len(rows) < BATCH:
                return

    # -- Data

    async def _purge_data(self) -> AsyncGenerator[None]:
        for past in self._ended(DATA_GONE):
            if await self.copy.has_data(past.party, past.key) and await self._may_go(past):
                count = await self._purge(self.data_stream, past, BakeData.TYPE)
                await self._gone(past, past.purged | DATA_GONE)
                if count:
                    log.info("retention: %d Data messages of %s purged: over 80 %% full", count, past.key)
                    yield

    # -- Status

    async def _trim(self) -> AsyncGenerator[None]:
        """Ended bakes keep their terminal alone."""
        for past in self._ended(TRIMMED):
            if await self._may_go(past):
                for name in INTERIM:
                    await self._purge(self.status_stream, past, f"{BAKE}.{name}")
                await self._gone(past, past.purged | TRIMMED)
                yield

    async def _purge_bakes(self, until: int | None = None) -> AsyncGenerator[None]:
        """All of ended bakes."""
        for past in self._ended(ALL_GONE, until):
            if await self.copy.has_data(past.party, past.key) and await self._may_go(past):
                await self._purge(self.data_stream, past, BakeData.TYPE)
                await self._purge(self.status_stream, past, f"{BAKE}.*")
                await self._gone(past, past.purged | ALL_GONE)
                yield

    async def _halve(self) -> AsyncGenerator[None]:
        """The older half of all that is left: bakes that go on must be able to say how they end."""
        state = (await self.bus.api.stream_info(self.status_stream))["state"]
        first, last = int(state["first_seq"]), int(state["last_seq"])
        before = min((first + last) // 2, last - NEWEST) + 1
        if self.bus.on_leaf:
            before = min(before, await self.copy.status_position() + 1)
        if before > first:
            count = await self.bus.api.purge_stream(self.status_stream, before=before)
            log.warning(
                "retention: %s is full of bakes that have not ended: the oldest %d messages of them purged",
                self.status_stream,
                count,
            )
        yield

    async def _may_go(self, past: Past) -> bool:
        """Whether the end of a bake is where it belongs, so that nothing of it is missed any more."""
        unsent = self.journal.db.execute("SELECT 1 FROM outbox_status WHERE bake=? LIMIT 1", (past.bake,))
        return unsent.fetchone() is None and await self.copy.has_end(past.party, past.key)

    async def _purge(self, stream: str, past: Past, types: str) -> int:
        return await purge_subject(
            self.bus, stream, f"{self.bus.mesh}.{self.node_id}.{past.party}.{past.key}.{types}"
        )

    async def _gone(self, past: Past, what: int) -> None:
        def work(db: Db) -> None:
            db.execute("UPDATE bakes SET purged=? WHERE bake=?", (what, past.bake))
            if what & ALL_GONE:
                db.execute("DELETE FROM controls WHERE bake=?", (past.bake,))

        await self.journal.commit(work)
        if what & (DATA_GONE | ALL_GONE):
            await asyncio.to_thread(shutil.rmtree, self.folder / str(past.bake), True)

    # -- what was answered

    async def _forget_answers(self) -> None:
        """Results of messages that came seven days ago: none of them comes again as the same message."""
        before = self.clock.wall() - STATUS_DAYS * DAY_US
        old = "SELECT party, envelope FROM answers WHERE at < ? LIMIT ?"
        while self.journal.db.execute(old, (before, 1)).fetchone() is not None:
            await self.journal.commit(
                lambda db: db.execute(
                    f"DELETE FROM answers WHERE (party, envelope) IN ({old})", (before, ANSWERS_AT_ONCE)
                )
            )
