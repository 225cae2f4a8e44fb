"""What waits for a crank, bounded. Pure: the time comes in.

Two kinds of items. Those that are `kept` (durable, Ready, handed over by the Builder) are never thrown away:
whoever puts them in has few of them out at a time. All others are at most once: where more than `most` items
or `most_bytes` of them wait, the oldest are dropped and counted. The order is that of arrival, of a delayed
item that of the end of its delay.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bakemesh.crank.messages import CrankMessage

MOST: Final = 4096
MOST_BYTES: Final = 64 << 20


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class Item:
    """A message that waits. `size`: its payload's bytes; `taken` is called as the crank gets it, `done` when
    it asks for the next one or ends well.
    """

    message: CrankMessage
    size: int = 0
    kept: bool = False
    taken: Callable[[], None] = _nothing
    done: Callable[[], None] = _nothing


class _Line:
    """Items in order; those of later behind a heap."""

    def __init__(self) -> None:
        self.now: deque[tuple[int, Item]] = deque()
        self.later: list[tuple[float, int, Item]] = []

    def __len__(self) -> int:
        return len(self.now) + len(self.later)


class Backlog:
    """The waiting line of one crank."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.dropped = 0
        self.bytes = 0  # of what may be dropped
        self._kept, self._loose = _Line(), _Line()
        self._order = 0

    def __len__(self) -> int:
        return len(self._kept) + len(self._loose)

    @property
    def kept(self) -> int:
        """How many items wait that are not dropped."""
        return len(self._kept)

    def put(self, item: Item, now: float, after_s: float = 0.0) -> int:
        """Adds an item, not to be taken before `after_s` is over. Gives how many were dropped for it."""
        line = self._kept if item.kept else self._loose
        self._order += 1
        if after_s > 0:
            heapq.heappush(line.later, (now + after_s, self._order, item))
        else:
            self._release(now)  # what is due by now came before it
            line.now.append((self._next(), item))
        if item.kept:
            return 0
        self.bytes += item.size
        return self._shorten()

    def take(self, now: float) -> Item | None:
        """The next item, None where none is due."""
        self._release(now)
        heads = [line for line in (self._kept, self._loose) if line.now]
        if not heads:
            return None
        line = min(heads, key=lambda each: each.now[0][0])
        _, item = line.now.popleft()
        if not item.kept:
            self.bytes -= item.size
        return item

    def due(self) -> float | None:
        """When the next delayed item is due; None where there is none."""
        return min((line.later[0][0] for line in (self._kept, self._loose) if line.later), default=None)

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _release(self, now: float) -> None:
        while (due := self.due()) is not None and due <= now:
            line = min(
                (each for each in (self._kept, self._loose) if each.later), key=lambda each: each.later[0][:2]
            )
            line.now.append((self._next(), heapq.heappop(line.later)[2]))

    def _shorten(self) -> int:
        """Drops the oldest; the one that came last stays, however large."""
        line, dropped = self._loose, 0
        while len(line) > 1 and (len(line) > self.most or self.bytes > self.most_bytes):
            item = line.now.popleft()[1] if line.now else heapq.heappop(line.later)[2]
            self.bytes -= item.size
            dropped += 1
        self.dropped += dropped
        return dropped
