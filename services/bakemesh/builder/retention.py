"""What is purged, and when: pure rules, and the shell that carries them out.

Data: where the node's data stream is 80 % full, bakes that ended go, oldest first, until it is below;
running bakes never. Status: seven days after the end of its bake. On a leaf a bake is purged only when the
hub holds its terminal, for a purge overtakes sourcing; where that cannot be confirmed nothing is purged, and
Data waits.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from bakemesh.builder.clock import Clock
from bakemesh.builder.journal import Journal
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.purge import purge_subject, stored_terminal
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeData
from bakemesh.protocol.subjects import BAKE

log = logging.getLogger(__name__)
FULL_AT = 0.8
STATUS_DAYS = 7
DAY_US = 86_400 * 1_000_000
EVERY_S = 5.0
BATCH = 64

DATA_GONE, STATUS_GONE = 1, 2


@dataclass(frozen=True, slots=True)
class Fill:
    """How full a stream is, bytes; `limit` 0 or less: unlimited."""

    used: int
    limit: int

    @property
    def over(self) -> bool:
        """Whether Data of bakes that ended has to go."""
        return self.limit > 0 and self.used >= self.limit * FULL_AT


def status_due(ended: int, now: int) -> bool:
    """Whether the Status of a bake that ended then is to go. µs since the epoch; a clock set back keeps."""
    return now - ended >= STATUS_DAYS * DAY_US


class Retention:
    """Purges one node's streams and removes the folders of bakes that are past keeping."""

    def __init__(self, bus: Bus, journal: Journal, node_id: str, folder: Path, clock: Clock) -> None:
        self.bus, self.journal, self.node_id = bus, journal, node_id
        self.folder, self.clock = folder, clock
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
        while await self._full():
            if not await self._purge_data():
                break
        await self._purge_status()

    async def _full(self) -> bool:
        info = await self.bus.api.stream_info(self.data_stream)
        return Fill(int(info["state"]["bytes"]), int(info["config"].get("max_bytes", 0))).over

    async def _purge_data(self) -> bool:
        """Takes the Data of the oldest ended bakes that still have some. False: there is none."""
        rows = self.journal.db.execute(
            "SELECT bake, party, key FROM bakes WHERE ended IS NOT NULL AND purged < 1"
            " ORDER BY ended LIMIT ?",
            (BATCH,),
        ).fetchall()
        for bake, party, key in rows:
            if not await self._may_go(party, key):
                return False
            subject = f"{self.bus.mesh}.{self.node_id}.{party}.{key}.{BakeData.TYPE}"
            count = await purge_subject(self.bus, self.data_stream, subject)
            await self._gone(bake, DATA_GONE)
            if count:
                log.info(
                    "retention: %d Data messages of %s purged: the stream is over 80 %% full", count, key
                )
                return True
        return bool(rows)

    async def _purge_status(self) -> None:
        now = self.clock.wall()
        rows = self.journal.db.execute(
            "SELECT bake, party, key, ended FROM bakes WHERE ended IS NOT NULL AND purged < 2"
            " ORDER BY ended LIMIT ?",
            (BATCH,),
        ).fetchall()
        for bake, party, key, ended in rows:
            if not status_due(ended, now) or not await self._may_go(party, key):
                return
            prefix = f"{self.bus.mesh}.{self.node_id}.{party}.{key}"
            await purge_subject(self.bus, self.data_stream, f"{prefix}.{BakeData.TYPE}")
            await purge_subject(self.bus, self.status_stream, f"{prefix}.{BAKE}.*")
            await self._gone(bake, STATUS_GONE)

    async def _may_go(self, party: str, key: str) -> bool:
        if not self.bus.on_leaf:
            return True
        found = await stored_terminal(self.bus, node_id=self.node_id, party=party, key=key)
        return found is not None

    async def _gone(self, bake: int, what: int) -> None:
        await self.journal.commit(
            lambda db: db.execute("UPDATE bakes SET purged=? WHERE bake=?", (what, bake))
        )
        await asyncio.to_thread(shutil.rmtree, self.folder / str(bake), True)
