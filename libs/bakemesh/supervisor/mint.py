"""Where the N of a RecipeID comes from: one counter a Supervisor, never the same twice.

    CounterMint   the counter in KV `<mesh>-ids`, moved by compare-and-set FolderMint    blocks of 1,000
    taken from that counter and kept in a state folder, so that minting goes on while
                  the bus is out of reach (files and locks: `reserve`)

Numbers are taken in small runs that double (1, 2, 4 … 64): a script that bakes once moves the counter by
one, a busy Supervisor pays one round trip in 64. N need not be contiguous; what a process took and did not
use is lost.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bakemesh.bus.errors import BusError, NotConnected, NotFound, StoreUnavailable, WrongSequence
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import names, storage
from bakemesh.protocol.numerals import whole
from bakemesh.supervisor.errors import MintExhausted, StateDamaged
from bakemesh.supervisor.reserve import Reserve

if TYPE_CHECKING:
    from bakemesh.bus import Bus

log = logging.getLogger(__name__)

LONGEST_RUN = 64
BLOCK = 1000
REFILL_BELOW = 250
EARLY_S, EARLY_AGAIN_S = 1.0, 10.0
ANSWER_S = 2.0
_UNANSWERED_TRIES = 3


class Mint(Protocol):
    """Gives the next N of one Supervisor."""

    async def next(self) -> int:
        """A number from 1 that this Supervisor never had before. Raises MintExhausted."""


class Runs:
    """Hands out numbers from a run and says how long the next one should be."""

    def __init__(self) -> None:
        self._next = self._end = 0  # the run is [_next, _end)
        self._length = 1

    def take(self) -> int | None:
        """The next number, None when the run is used up."""
        if self._next == self._end:
            return None
        number = self._next
        self._next += 1
        return number

    def wanted(self) -> int:
        """How many numbers the next run should hold."""
        return self._length

    def refill(self, first: int, count: int) -> None:
        """Begins a new run of `count` numbers from `first`."""
        self._next, self._end = first, first + count
        self._length = min(self._length * 2, LONGEST_RUN)


class Counter:
    """The counter of one Supervisor in the ids bucket; value: the last N in ASCII decimal."""

    def __init__(self, bus: Bus, supervisor: str) -> None:
        self._key = names.check("Supervisor", supervisor)
        self._bucket = Bucket(bus, storage.ids_bucket(bus.mesh), timeout=ANSWER_S)
        # (last N, revision): saves the read while nobody else mints
        self._known: tuple[int, int] | None = None

    async def advance(self, count: int) -> int:
        """Moves the counter by `count`; the first of the numbers won. Raises MintExhausted, StateDamaged.

        A lost answer costs numbers, never a repeat: the compare-and-set is then tried from what the bucket
        holds.
        """
        unanswered = 0
        while True:
            try:
                last, revision = self._known or await self._read()
                value = str(last + count).encode()
                won = await self._bucket.update(self._key, value, revision)
            except WrongSequence:
                self._known = None  # another process was quicker
                await asyncio.sleep(0)
                continue
            except NotFound as error:
                raise MintExhausted(
                    "no RecipeID can be minted: this mesh has no id bucket yet (no Builder ever ran)"
                ) from error
            except (StoreUnavailable, NotConnected) as error:
                self._known = None
                unanswered += 1
                if unanswered == _UNANSWERED_TRIES:
                    raise MintExhausted(
                        f"no RecipeID can be minted, the counter is out of reach: {error}"
                    ) from error
                await asyncio.sleep(0.1 * unanswered)
                continue
            except BusError as error:
                raise MintExhausted(f"no RecipeID can be minted: {error}") from error
            self._known = (last + count, won)
            return last + 1

    async def _read(self) -> tuple[int, int]:
        found = await self._bucket.get(self._key)
        if found is None:
            return 0, 0
        text = found.value.decode("ascii", "replace")
        last = whole(text)
        if last is None:
            raise StateDamaged(f"the id counter of {self._key!r} holds {text[:40]!r}; expected a number")
        return last, found.revision


class CounterMint:
    """Mints from the counter in KV; nothing is kept on this machine."""

    def __init__(self, bus: Bus, supervisor: str) -> None:
        self._counter = Counter(bus, supervisor)
        self._runs = Runs()
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """See Mint."""
        if (number := self._runs.take()) is not None:
            return number
        async with self._lock:
            while (number := self._runs.take()) is None:
                count = self._runs.wanted()
                self._runs.refill(await self._counter.advance(count), count)
            return number


class FolderMint:
    """Mints from blocks that a state folder keeps; takes another block in time, and goes on while that
    fails.
    """

    def __init__(self, bus: Bus, supervisor: str, folder: Path, block: int = BLOCK) -> None:
        self._bus = bus
        self._counter = Counter(bus, supervisor)
        self._not_before = float("-inf")
        self._reserve = Reserve(folder, bus.mesh, supervisor)
        self._block, self._low = block, min(REFILL_BELOW, block // 4)
        self._runs = Runs()
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """See Mint."""
        if (number := self._runs.take()) is not None:
            return number
        async with self._lock:
            while (number := self._runs.take()) is None:
                await self._refill()
            return number

    async def _refill(self) -> None:
        taken, left = await asyncio.to_thread(self._reserve.take, self._runs.wanted())
        if taken is None:
            await asyncio.to_thread(self._reserve.add, await self._counter.advance(self._block), self._block)
            return
        self._runs.refill(*taken)
        loop = asyncio.get_running_loop()
        if left <= self._low and self._bus.connected and loop.time() >= self._not_before:
            # In time, and without holding anybody up for long: there are numbers left.
            try:
                async with asyncio.timeout(EARLY_S):
                    first = await self._counter.advance(self._block)
            except (TimeoutError, MintExhausted) as error:
                self._not_before = loop.time() + EARLY_AGAIN_S
                log.info("%d RecipeIDs left in the reserve, no more to be had now: %s", left, error)
            else:
                await asyncio.to_thread(self._reserve.add, first, self._block)
