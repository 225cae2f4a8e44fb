"""Keeps the hub's sourced streams in bounds: a purge at a node does not reach them.

One Builder of the mesh does it, by the lock `lock.janitor`. The rules are those of `retention`: where
`<mesh>-data` is 80 % full, Data of bakes that ended goes, oldest first; Status goes seven days after its
bake's terminal was stored, and sooner where `<mesh>-status` is 80 % full. Bakes are found by their terminals
in `<mesh>-status`, which lie there in the order of their ends. What could not be done for a hub out of reach
is done at the next look.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from datetime import datetime

from bakemesh.builder.clock import Clock
from bakemesh.builder.retention import INTERIM, Fill, status_due
from bakemesh.bus.claim import Lock
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError, NotFound
from bakemesh.bus.jsapi import Stored
from bakemesh.bus.purge import purge_subject
from bakemesh.protocol import storage
from bakemesh.protocol.errors import SubjectError
from bakemesh.protocol.subjects import BAKE, Subject, parse, pattern

log = logging.getLogger(__name__)
EVERY_S = 30.0
LOCK = "janitor"
ENDS = ("Success", "Failed", "Cancelled")
MOST = 1000  # bakes a look


def _prefix(bake: Subject) -> str:
    return f"{bake.mesh}.{bake.node_id}.{bake.party}.{bake.key}.{BAKE}"


def microseconds(time: str) -> int:
    """A stored message's time, RFC 3339 with up to nanoseconds, in µs since the epoch."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 1_000_000 + int((fraction + "000000")[:6])


class Janitor:
    """The hub's purges, while this process holds the lock."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self.bus, self.clock = bus, clock
        self.status = storage.hub_status_stream(bus.mesh)
        self.data = storage.hub_data_stream(bus.mesh)
        self._lock = Lock(bus, LOCK, f"{bus.settings.sender} {secrets.token_hex(8)}")
        self._purged = 0  # Data of bakes whose terminal lies before this sequence is gone already
        self._trimmed = 0  # the same of all Status but the terminal

    async def run(self) -> None:
        """Looks every now and then, for ever."""
        try:
            while True:
                try:
                    if self._lock.held or await self._lock.try_take():
                        await self.round()
                except BusError as error:
                    log.info("janitor: %s", error)
                await asyncio.sleep(EVERY_S)
        finally:
            await self._lock.release()

    async def round(self) -> None:
        """One look at both streams. To be called by the lock's holder alone."""
        await self._old_status()
        await self._full_data()
        await self._full_status()

    async def _old_status(self) -> None:
        for _ in range(MOST):
            oldest = await self._next_end(1)
            if oldest is None or not status_due(microseconds(oldest.time), self.clock.wall()):
                return
            if not await self._purge_bake(oldest):
                return

    async def _full_status(self) -> None:
        """Where it is full no Status arrives at all: first all but the terminals goes, then what ended first,
        then the older half of what is left.
        """
        for _ in range(MOST):
            if not await self._is_full(self.status):
                return
            ended = await self._next_end(self._trimmed + 1)
            bake = None if ended is None else self._bake_of(ended)
            if ended is None or bake is None:
                break
            for name in INTERIM:
                await self._purge(self.status, f"{_prefix(bake)}.{name}")
            self._trimmed = ended.sequence
        for _ in range(MOST):
            if not await self._is_full(self.status):
                return
            ended = await self._next_end(1)
            if ended is None or not await self._purge_bake(ended):
                await self._halve()
                return

    async def _halve(self) -> None:
        state = (await self.bus.hub_api.stream_info(self.status))["state"]
        before = (int(state["first_seq"]) + int(state["last_seq"])) // 2 + 1
        count = await self.bus.hub_api.purge_stream(self.status, before=before)
        log.warning("%s is full of bakes that have not ended: the oldest %d purged", self.status, count)

    async def _purge_bake(self, end: Stored) -> bool:
        """All of the bake with this terminal. False where it is none."""
        bake = self._bake_of(end)
        if bake is None:
            return False
        await self._purge(self.data, f"{_prefix(bake)}.Data")
        await self._purge(self.status, f"{_prefix(bake)}.*")
        return True

    async def _full_data(self) -> None:
        sequence = self._purged + 1
        for _ in range(MOST):
            if not await self._is_full(self.data):
                return
            ended = await self._next_end(sequence)
            bake = None if ended is None else self._bake_of(ended)
            if ended is None or bake is None:
                log.warning("%s is full, and no bake that has ended has Data there", self.data)
                return
            sequence = ended.sequence + 1
            count = await self._purge(self.data, f"{_prefix(bake)}.Data")
            self._purged = ended.sequence
            if count:
                log.info("%s is over 80 %% full: %d messages of %s purged", self.data, count, bake.key)

    async def _is_full(self, stream: str) -> bool:
        try:
            info = await self.bus.hub_api.stream_info(stream)
        except NotFound:
            return False  # no node, or no leaf, has ever joined
        return Fill(int(info["state"]["bytes"]), int(info["config"].get("max_bytes", 0))).over

    async def _next_end(self, sequence: int) -> Stored | None:
        """The first terminal at or after `sequence`."""
        found: Stored | None = None
        for name in ENDS:
            try:
                end = await self.bus.hub_api.get_message(
                    self.status, sequence=sequence, next_of=pattern(self.bus.mesh, f"{BAKE}.{name}")
                )
            except NotFound:
                continue
            if found is None or end.sequence < found.sequence:
                found = end
        return found

    def _bake_of(self, end: Stored) -> Subject | None:
        try:
            return parse(end.subject)
        except SubjectError:
            return None

    async def _purge(self, stream: str, subject: str) -> int:
        try:
            return await purge_subject(self.bus, stream, subject, api=self.bus.hub_api)
        except NotFound:
            return 0
