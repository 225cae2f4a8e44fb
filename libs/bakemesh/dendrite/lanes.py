"""Lanes of the sdk profile: a uuid that one request at a time uses.

The real axon refuses a nonce that is not larger than the last one of the same hotkey and uuid, and remembers
one for each: with one uuid requests that overtake each other would be refused, with a new one for each
request its memory would grow. So there are as many as are needed at once, up to a limit, and the one used
last is used first.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Lanes:
    """The lanes to one axon; who finds none waits, in the order of asking."""

    def __init__(self, limit: int) -> None:
        self._free: list[str] = []
        self._room = asyncio.Semaphore(limit)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[str]:
        """The uuid of a lane that nobody else uses meanwhile."""
        async with self._room:
            lane = self._free.pop() if self._free else str(uuid.uuid1())
            try:
                yield lane
            finally:
                self._free.append(lane)
