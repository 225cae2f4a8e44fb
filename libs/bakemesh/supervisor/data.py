"""A bake's Data, read from its stream: every chunk once, in order, byte for byte.

Guarantees: seq is held against the strict guard (IntegrityError, latched: each further read raises it
again); the iteration ends when the terminal's `lastseq` has been read; where an ended bake's seq 1..lastseq
is not all there the reader says so (DataPruned; DataLate while a hub still lacks what the node has), never
a silent gap. Messages that are not of this bake are skipped by the same checks that every receiver makes.
Nothing runs between two reads. Left out: core NATS, which also carries what a full stream refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Literal

from bakemesh.bus.errors import NotFound
from bakemesh.protocol.builder.messages import BakeData
from bakemesh.protocol.builder.streams import DataGuard, Verdict
from bakemesh.protocol.errors import IntegrityError
from bakemesh.supervisor.errors import DataLate, DataPruned
from bakemesh.supervisor.status import PASSING, StatusFeed

log = logging.getLogger(__name__)

# Reads this bake's stored Data from a stream sequence on, up to what is there now or for ever:
# (chunk, stream sequence), and None for a message that is not of this bake.
Open = Callable[[int, Literal["last", "follow"]], AsyncGenerator[tuple[BakeData | None, int]]]
# Whether the stream that is read may still get what it lacks (a hub that sources a node's stream).
Late = Callable[[], Awaitable[bool]]

QUIET_S = 8.0
LATE_S = 60.0
_AGAIN_S = (0.05, 0.2, 0.5, 1.0)


class DataReader:
    """`async for chunk in bake.data()`: seq 1 to `lastseq`, independent of every other reader.

    `follow` false: a bake that runs on is read up to what is stored now.
    """

    def __init__(
        self, feed: StatusFeed, open_: Open, late: Late, *, follow: bool = True, late_s: float = LATE_S
    ) -> None:
        self._feed, self._open, self._late, self._late_s = feed, open_, late, late_s
        self._follow = follow
        self._guard = DataGuard()
        self._sequence = 0  # the last stream sequence that was read
        self._source: AsyncGenerator[tuple[BakeData | None, int]] | None = None
        self._to_the_end = False  # the source ends where the stream ends now
        self._interrupt: asyncio.Timeout | None = None
        self._lacking_since: float | None = None
        self._tries = 0
        self._reading = asyncio.Lock()
        self._ended = False
        self._error: Exception | None = None

    def __aiter__(self) -> DataReader:
        return self

    async def __anext__(self) -> BakeData:
        async with self._reading:
            try:
                while not self._ended:
                    if self._error is not None:
                        raise self._error
                    if self._complete:
                        break
                    self._feed.raise_if_over()
                    found = await self._next()
                    if found is not None and (chunk := await self._accept(*found)) is not None:
                        return chunk
            except (IntegrityError, DataPruned, DataLate) as error:
                self._error = error
                await self._drop_source()
                raise
            await self._end()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Ends the iteration, also one that waits in another task; more than once is harmless."""
        self._ended = True
        self._cut_short()
        async with self._reading:
            await self._end()

    async def release(self) -> None:
        """Lets go of what it holds of the bus, once a read that is under way has ended."""
        async with self._reading:
            await self._drop_source()

    async def _end(self) -> None:
        self._ended = True
        self._feed.forget_terminal(self._cut_short)
        await self._drop_source()

    @property
    def last(self) -> int:
        """The last seq that was read."""
        return self._guard.last

    @property
    def _complete(self) -> bool:
        terminal = self._feed.log.terminal
        return terminal is not None and self._guard.last >= (terminal.lastseq or 0)

    async def _next(self) -> tuple[BakeData | None, int] | None:
        """The next stored message; None where there was none for now and what to do next is to be decided
        again.
        """
        if self._source is None:
            self._to_the_end = not self._follow or self._feed.log.terminal is not None
            self._feed.on_terminal(self._cut_short)
            self._source = self._open(self._sequence + 1, "last" if self._to_the_end else "follow")
        try:
            async with asyncio.timeout(None if self._to_the_end else QUIET_S) as self._interrupt:
                return await anext(self._source)
        except StopAsyncIteration:
            await self._drop_source()
            if self._feed.log.terminal is None:
                self._ended = self._ended or not self._follow
            elif self._to_the_end and not self._complete:
                await self._lacks()
        except TimeoutError:
            await self._drop_source()
            await self._ask_for_terminal()
        except PASSING as error:
            log.debug("data of %s cannot be read now: %s", self._feed.recipe_id, error)
            await self._drop_source()
            if not self._follow and isinstance(error, NotFound) and self._feed.log.terminal is None:
                self._ended = True  # a node that has not stored anything yet
                return None
            await self._pause()
            await self._ask_for_terminal()
            if self._feed.log.terminal is not None and not self._complete:
                await self._lacks()
        finally:
            self._interrupt = None
        return None

    async def _accept(self, chunk: BakeData | None, sequence: int) -> BakeData | None:
        self._sequence = sequence
        if chunk is None:
            return None
        if self._guard.last == 0 and chunk.seq > 1:
            # Only an ended bake is ever purged: for any other this is a hole.
            await self._feed.catch_up()
            terminal = self._feed.log.terminal
            if terminal is not None and chunk.seq <= (terminal.lastseq or 0):
                raise DataPruned(self._feed.recipe_id, 0, terminal.lastseq or 0)
        self._lacking_since, self._tries = None, 0
        return chunk if self._guard.accept(chunk.seq) is Verdict.NEW else None

    async def _lacks(self) -> None:
        """The bake has ended and the stream does not hold all of it: pruned, or not here yet."""
        terminal = self._feed.log.terminal
        assert terminal is not None
        lastseq = terminal.lastseq or 0
        now = asyncio.get_running_loop().time()
        if self._lacking_since is None:
            self._lacking_since = now  # once more: what was stored while the last read was under way
        elif not await self._late():
            raise DataPruned(self._feed.recipe_id, self._guard.last, lastseq)
        elif now - self._lacking_since > self._late_s:
            raise DataLate(self._feed.recipe_id, self._guard.last, lastseq)
        else:
            await self._pause()

    async def _pause(self) -> None:
        await self._feed.changed(_AGAIN_S[min(self._tries, len(_AGAIN_S) - 1)])
        self._tries += 1

    async def _ask_for_terminal(self) -> None:
        """It was quiet: the terminal may be stored without having come live."""
        self._feed.raise_if_over()
        if self._feed.log.terminal is None and not self._ended:
            try:
                await self._feed.catch_up()
            except PASSING as error:
                log.debug("status of %s cannot be read now: %s", self._feed.recipe_id, error)

    def _cut_short(self) -> None:
        """A read that waits for more than there may be looks again: the end is known, or it is closed."""
        if self._interrupt is not None and not self._interrupt.expired():
            self._interrupt.reschedule(asyncio.get_running_loop().time())

    async def _drop_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.aclose()
