"""Data that the Supervisor pushed for a bake, by request name and part; steps wait for the whole of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

MAX_BYTES = 64 * 2**20  # of all pushes of one bake


class Pushed:
    """The pushes of one bake. What is here is in the journal."""

    def __init__(self, requests: frozenset[str], kept: Iterable[tuple[str, int, bool, bytes]]) -> None:
        self.requests = requests
        self.bytes = 0
        self._parts: dict[str, dict[int, bytes]] = {}
        self._last: dict[str, int] = {}
        self._arrived = asyncio.Event()
        for request, part, last, data in kept:
            self.add(request, part, last, data)

    def part(self, request: str, part: int) -> bytes | None:
        """A part that came before."""
        return self._parts.get(request, {}).get(part)

    def last_part(self, request: str) -> int | None:
        """The number of the last part, once it is known."""
        return self._last.get(request)

    def highest_part(self, request: str) -> int:
        """The highest part that came; 0 for none."""
        return max(self._parts.get(request, {0: b""}))

    def add(self, request: str, part: int, last: bool, data: bytes) -> None:
        """Takes a part."""
        self._parts.setdefault(request, {})[part] = data
        self.bytes += len(data)
        if last:
            self._last[request] = part
        arrived, self._arrived = self._arrived, asyncio.Event()
        arrived.set()

    def _whole(self, request: str) -> bytes | None:
        last = self._last.get(request)
        parts = self._parts.get(request, {})
        if last is None or any(number not in parts for number in range(1, last + 1)):
            return None
        return b"".join(parts[number] for number in range(1, last + 1))

    async def wait(self, request: str) -> bytes:
        """The whole push for `request`, once its last part and all before it are there."""
        while (whole := self._whole(request)) is None:
            await self._arrived.wait()
        return whole
