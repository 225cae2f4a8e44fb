"""A bake's Status as its Supervisor follows it: live messages, and the stream wherever they are not enough.

    live (core) ──┐
                  ├─→ StatusLog ─→ any number of readers, outcome()
    stream ───────┘

Guarantees: every reader gets each serial once, in order, without a gap, up to the terminal. Core NATS may
lose; so the stream is read after a gap, a reconnect, a slow consumer, at a late attach, and when it has
been quiet for longer than a heartbeat (a node that was cut off stores its Status later and nothing of it
comes live). Nothing runs in the background: whoever waits does the reading, one at a time. Left out: Data.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from bakemesh.bus.errors import NoResponder, NotConnected, NotFound, RequestTimeout, StoreUnavailable
from bakemesh.protocol.builder.messages import BakeOutcome, BakeStatus
from bakemesh.supervisor.errors import StatusPruned, SupervisorError
from bakemesh.supervisor.statuslog import StatusLog, is_terminal

log = logging.getLogger(__name__)

QUIET_S = 8.0  # longer than the default heartbeat of 5 s: a healthy bake is never asked after
QUIET_LONGEST_S = 10.0
REFUSAL_GRACE_S = 1.0
_RETRY_S = (0.02, 0.1, 0.5, 1.0)
# How often a reader that is behind looks for what a late hub will hold.
_BEHIND_S = (0.05, 0.2, 0.5, *(1.0,) * 30)
# What waiting mends; everything else that a stream answers is told to the reader.
PASSING = (StoreUnavailable, NotConnected, NoResponder, RequestTimeout, NotFound)

# Reads this bake's stored Status from a stream sequence on, up to what is stored now: (status, stream
# sequence).
Replay = Callable[[int], AsyncGenerator[tuple[BakeStatus, int]]]
# How many messages of this bake the stream holds: one request, cheaper than a replay that finds nothing new.
Count = Callable[[], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a reader waits before it asks the stream of its own accord, in seconds."""

    quiet_s: float = QUIET_S
    quiet_longest_s: float = QUIET_LONGEST_S
    refusal_grace_s: float = REFUSAL_GRACE_S


class StatusFeed:
    """The one place where a bake's Status comes together. `recipe_id` is for messages of errors."""

    def __init__(
        self,
        recipe_id: str,
        replay: Replay,
        count: Count | None = None,
        *,
        timing: Timing | None = None,
        suspect: bool = False,
    ) -> None:
        self.log = StatusLog()
        self.recipe_id = recipe_id
        self._replay = replay
        self._timing = timing or Timing()
        self._count = count
        self._counted: int | None = 0
        self._sequence = 0  # the last stream sequence that was replayed
        self._suspect = suspect  # live messages may be missing
        self._reading = asyncio.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._refused: SupervisorError | None = None
        self._closed: Exception | None = None
        self._on_terminal: set[Callable[[], None]] = set()
        self.on_new: Callable[[BakeStatus], None] = lambda _status: None

    # -- what comes in

    def offer(self, status: BakeStatus) -> None:
        """Takes a message, live or stored."""
        if self.log.offer(status):
            self.on_new(status)
            self._wake()
            if self.log.terminal is status:
                self._tell_end()

    def suspect(self) -> None:
        """Live messages may have been lost: the next one who waits reads the stream."""
        if not self.log.ended:
            self._suspect = True
            self._wake()

    def refuse(self, error: SupervisorError) -> None:
        """The recipe was refused by a Result alone: readers end with `error` unless a terminal comes."""
        self._refused = error
        self._wake()
        self._tell_end()

    def news(self) -> None:
        """Something else that readers may wait for has changed."""
        self._wake()

    def close(self, reason: Exception) -> None:
        """Ends everybody who waits, with `reason`."""
        self._closed = self._closed or reason
        self._wake()
        self._tell_end()

    def on_terminal(self, callback: Callable[[], None]) -> None:
        """Calls back when nothing more will come: at the terminal, at a refusal, at `close`."""
        self._on_terminal.add(callback)

    def forget_terminal(self, callback: Callable[[], None]) -> None:
        """Takes the callback out again."""
        self._on_terminal.discard(callback)

    def raise_if_over(self) -> None:
        """Raises where no terminal will ever come: after `close`, and for a refused recipe."""
        self.raise_if_closed()
        if self._refused is not None and self.log.terminal is None:
            raise self._refused

    def raise_if_closed(self) -> None:
        """Raises the reason after `close`."""
        if self._closed is not None:
            raise self._closed

    def _tell_end(self) -> None:
        for callback in list(self._on_terminal):
            callback()

    # -- what goes out

    def reader(self) -> StatusReader:
        """An iterator from serial 1 to the terminal, independent of every other."""
        return StatusReader(self)

    async def outcome(self) -> BakeOutcome:
        """Waits for the terminal; earlier messages need not be there any more."""
        await self.until(lambda: self.log.terminal is not None)
        assert self.log.terminal is not None
        return self.log.terminal

    async def catch_up(self) -> None:
        """Reads what the stream has beyond what was read before. Raises a bus error where it cannot be
        read.
        """
        async with self._reading:
            await self._read_stream()

    async def stored_from(self, serial: int) -> AsyncGenerator[BakeStatus]:
        """Stored Status from `serial` on, for a reader that fell behind what is kept. Raises StatusPruned."""
        async for status, _ in self._replay(1):
            if status.serial < serial:
                continue
            if status.serial > serial:
                raise StatusPruned(self.recipe_id, serial)
            yield status
            serial += 1

    async def until(self, enough: Callable[[], bool]) -> None:
        """Waits until `enough()`; reads the stream wherever news may have been lost.

        Raises the refusal where the recipe was refused, Closed after `close`, and a bus error that waiting
        cannot mend (AccessDenied, BusClosed).
        """
        quiet, tries = self._timing.quiet_s, 0
        while not enough():
            self.raise_if_closed()
            if self._doubtful:
                read = await self._mend(only_if_doubtful=True)
                if not enough() and not (read and not self._doubtful):
                    # Not stored yet (a hub is a moment late), or the bus is away: news or a pause, then
                    # again.
                    await self.changed(_RETRY_S[min(tries, len(_RETRY_S) - 1)])
                    tries += 1
                continue
            tries = 0
            if await self.changed(min(quiet, self._timing.refusal_grace_s) if self._refused else quiet):
                quiet = self._timing.quiet_s
                continue
            await self._look()
            if self._refused is not None and not enough():
                raise self._refused
            quiet = min(quiet * 2, self._timing.quiet_longest_s)

    async def changed(self, timeout: float) -> bool:
        """Whether something came in within `timeout` seconds."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    @property
    def _doubtful(self) -> bool:
        return self._suspect or self.log.gap

    async def _look(self) -> None:
        """It was quiet: reads the stream if it holds another number of messages than at the last look."""
        try:
            count = None if self._count is None else await self._count()
        except PASSING as error:
            log.debug("status of %s cannot be counted now: %s", self.recipe_id, error)
            return
        if (count is None or count != self._counted) and await self._mend():
            self._counted = count

    async def _mend(self, *, only_if_doubtful: bool = False) -> bool:
        """Reads the stream; False where it cannot be read now. Another reader's reading counts as one's
        own.
        """
        async with self._reading:
            if only_if_doubtful and not self._doubtful:
                return True
            try:
                await self._read_stream()
            except PASSING as error:
                log.debug("status of %s cannot be read now: %s", self.recipe_id, error)
                return False
        return True

    async def _read_stream(self) -> None:
        self._suspect, whole = False, False  # what is lost from here on makes it suspect again
        try:
            async for status, sequence in self._replay(self._sequence + 1):
                # A stream is in order of serials: what it does not have below this one is gone for good.
                self.log.skip_to(status.serial)
                self._sequence = sequence
                self.offer(status)
            whole = True
        except NotFound:  # no such stream: its node was never up, and nothing is stored
            whole = True
        finally:
            if not whole:
                self._suspect = True

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class StatusReader:
    """`async for status in bake.status()`: each serial once, in order, up to the terminal."""

    def __init__(self, feed: StatusFeed) -> None:
        self._feed = feed
        self._next = 1
        self._stored: AsyncGenerator[BakeStatus] | None = None
        self._reading = asyncio.Lock()
        self._ended = False

    def __aiter__(self) -> StatusReader:
        return self

    async def __anext__(self) -> BakeStatus:
        async with self._reading:
            log = self._feed.log
            status = log.entry(self._next)
            while status is None and not self._ended:
                if self._next < log.base:
                    status = await self._from_stream()
                else:
                    await self._feed.until(lambda: log.top >= self._next or self._ended)
                    status = log.entry(self._next)
            if status is None or self._ended:
                await self._drop_stored()
                raise StopAsyncIteration
            self._next += 1
            if is_terminal(status):
                self._ended = True
                await self._drop_stored()
            return status

    async def aclose(self) -> None:
        """Ends the iteration, also one that waits in another task; more than once is harmless."""
        self._ended = True
        self._feed.news()
        await self.release()

    async def release(self) -> None:
        """Lets go of what it holds of the bus, once a read that is under way has ended."""
        async with self._reading:
            await self._drop_stored()

    async def _from_stream(self) -> BakeStatus | None:
        """The next one out of the stream, for a reader that was slower than the window; None: look again."""
        for pause in _BEHIND_S:
            self._feed.raise_if_closed()
            if self._ended:
                return None
            if self._stored is None:
                self._stored = self._feed.stored_from(self._next)
            try:
                return await anext(self._stored)
            except StopAsyncIteration:
                await self._drop_stored()
            except PASSING:
                await self._drop_stored()
            if self._feed.log.entry(self._next) is not None:
                return None
            await self._feed.changed(pause)
        raise StatusPruned(self._feed.recipe_id, self._next)

    async def _drop_stored(self) -> None:
        stored, self._stored = self._stored, None
        if stored is not None:
            await stored.aclose()
