"""Where a crank waits for its messages: the one place that knows what it has in its hands.

A message is through (`Item.done`) when the crank asks for the next one, or when it ends well; a crank that
fails never ends the one it had. Asking again is the acknowledgement: a crank has nothing to say for it.
"""

from __future__ import annotations

import asyncio

from bakemesh.crank.backlog import Backlog, Item
from bakemesh.crank.errors import CrankOver
from bakemesh.crank.messages import CrankMessage

_AT_ONCE = 32  # messages taken without waiting, before others in the loop get their turn


class Mailbox:
    """One crank's. To be used in the loop alone."""

    def __init__(self, backlog: Backlog | None = None) -> None:
        self.backlog = Backlog() if backlog is None else backlog
        self.stopped = False
        self._hand: Item | None = None
        self._waiting = False
        self._news: asyncio.Future[None] | None = None
        self._turns = 0
        self._loop = asyncio.get_running_loop()

    def put(self, item: Item, after_s: float = 0.0) -> int:
        """Adds an item. Gives how many others were dropped for it."""
        dropped = self.backlog.put(item, self._loop.time(), after_s)
        self._wake()
        return dropped

    def stop(self) -> None:
        """Gives nothing more: whoever waits is told at once."""
        self.stopped = True
        self._wake()

    def finish(self) -> None:
        """The crank is through with what it has."""
        hand, self._hand = self._hand, None
        if hand is not None:
            hand.done()

    async def take(self, timeout: float | None = None) -> CrankMessage | None:
        """The next message; None after `timeout` seconds, and when the crank is to stop.

        Raises CrankOver where somebody waits already.
        """
        if self._waiting:
            raise CrankOver("one task of a crank waits for messages at a time; hand them on from there")
        self.finish()
        self._waiting = True
        try:
            return await self._taken(None if timeout is None else self._loop.time() + max(0.0, timeout))
        finally:
            self._waiting = False

    async def _taken(self, deadline: float | None) -> CrankMessage | None:
        while not self.stopped:
            await self._turn()  # not behind the taking: whoever gives up waiting has lost nothing
            item = self.backlog.take(self._loop.time())
            if item is not None:
                self._hand = item
                item.taken()
                return item.message
            if deadline is not None and self._loop.time() >= deadline:
                return None
            await self._wait(deadline)
            self._turns = 0
        return None

    async def _turn(self) -> None:
        self._turns += 1
        if self._turns >= _AT_ONCE:
            self._turns = 0
            await asyncio.sleep(0)

    async def _wait(self, deadline: float | None) -> None:
        times = [when for when in (deadline, self.backlog.due()) if when is not None]
        self._news = self._loop.create_future()
        timer = self._loop.call_at(min(times), self._wake) if times else None
        try:
            await self._news
        finally:
            self._news = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
