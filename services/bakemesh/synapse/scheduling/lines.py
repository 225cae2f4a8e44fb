"""What waits: tickets in lines, lines in classes. Pure data: nothing here awaits or reads a clock.

A ticket is a range of one request's items; a line holds tickets that may share a batch: one class, kind and
model, and of embeddings one pooling. Inside a line, and among the lines of a class, priority orders, then
arrival. A ticket that ran before has a line of its own: it is never merged with others' items.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from bakemesh.synapse.scheduling.cutting import cut
from bakemesh.workerpool.models import ModelKey


class Owner(Protocol):
    """The request that a ticket is of."""

    over: bool
    arrived: float


class LineKey(NamedTuple):
    """`needs`: a type that the lane's worker has to know. `alone`: 0, or the request's number."""

    work_class: str
    kind: str
    model: ModelKey
    pooling: str = ""
    normalize: bool = True
    needs: str | None = None
    alone: int = 0


class Ticket:
    """Items `at` to `end` of a request. `offset`: bytes of ids before `at`. `rank`: the order of things."""

    __slots__ = (
        "at",
        "attempt",
        "avoid",
        "counts",
        "end",
        "extra",
        "key",
        "offset",
        "owner",
        "rank",
        "tokens",
    )

    def __init__(
        self,
        owner: Owner,
        key: LineKey,
        rank: tuple[int, int],
        counts: Sequence[int],
        extra: int,
        tokens: int,
        *,
        at: int = 0,
        end: int | None = None,
        offset: int = 0,
        attempt: int = 0,
        avoid: str | None = None,
    ) -> None:
        self.owner, self.key, self.rank, self.counts, self.extra = owner, key, rank, counts, extra
        self.at, self.end, self.offset = at, len(counts) if end is None else end, offset
        self.tokens, self.attempt, self.avoid = tokens, attempt, avoid


class Piece(NamedTuple):
    """What was cut from a ticket for one run: items `first` to `end`, ids from byte `offset` to `until`."""

    ticket: Ticket
    first: int
    end: int
    offset: int
    until: int
    tokens: int


class Line:
    """Tickets that may share a batch, first the one that is next."""

    __slots__ = ("_dead", "_heap", "key", "waiting")

    def __init__(self, key: LineKey) -> None:
        self.key = key
        self.waiting: dict[int, int] = {}  # tokens by priority
        self._heap: list[tuple[int, int, int, Ticket]] = []
        self._dead = 0

    def push(self, ticket: Ticket) -> None:
        """It waits."""
        heapq.heappush(self._heap, (*ticket.rank, ticket.at, ticket))
        self._count(ticket, ticket.tokens)

    def drop(self, ticket: Ticket) -> None:
        """Its request is over: it waits no more. Of one that does not wait: nothing."""
        if ticket.tokens:
            self._count(ticket, -ticket.tokens)
            ticket.tokens, ticket.at = 0, ticket.end
            self._dead += 1
            if self._dead > 64 and self._dead * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[3].at < entry[3].end]
                heapq.heapify(self._heap)
                self._dead = 0

    @property
    def head(self) -> Ticket | None:
        """The next one."""
        heap = self._heap
        while heap:
            ticket = heap[0][3]
            if ticket.at < ticket.end:
                return ticket
            heapq.heappop(heap)
            self._dead -= 1
        return None

    def take(self, tokens: int, items: int) -> list[Piece]:
        """The next quantum, in order: no ticket is passed over for one that would fit better. Of a line of
        its own, one ticket at a time."""
        pieces: list[Piece] = []
        while items > 0 and (ticket := self.head) is not None:
            first, offset = ticket.at, ticket.offset
            end, used = cut(ticket.counts, ticket.extra, first, ticket.end, tokens, items, whole=not pieces)
            if end == first:
                break
            until = offset + 4 * (used - ticket.extra * (end - first))
            pieces.append(Piece(ticket, first, end, offset, until, used))
            self._count(ticket, -used)
            heapq.heappop(self._heap)
            ticket.at, ticket.offset, ticket.tokens = end, until, ticket.tokens - used
            if end < ticket.end:
                heapq.heappush(self._heap, (*ticket.rank, end, ticket))
                break
            tokens, items = tokens - used, items - (end - first)
            if self.key.alone or self.key.kind != "embed":
                break
        return pieces

    @property
    def tokens(self) -> int:
        """All that wait."""
        return sum(self.waiting.values())

    def before(self, priority: int) -> int:
        """Tokens that go before something new of that priority."""
        return sum(tokens for each, tokens in self.waiting.items() if each >= priority)

    def owners(self) -> list[Owner]:
        """Whose tickets wait."""
        return [ticket.owner for _, _, _, ticket in self._heap if ticket.at < ticket.end]

    def _count(self, ticket: Ticket, tokens: int) -> None:
        priority = -ticket.rank[0]
        left = self.waiting.get(priority, 0) + tokens
        if left:
            self.waiting[priority] = left
        else:
            self.waiting.pop(priority, None)


class Lines:
    """All lines of all classes."""

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes: dict[str, dict[LineKey, Line]] = {name: {} for name in classes}

    def __bool__(self) -> bool:
        return any(self._classes.values())

    def models(self) -> frozenset[ModelKey]:
        """Those that somebody waits for."""
        return frozenset([key.model for lines in self._classes.values() for key in lines])

    def push(self, ticket: Ticket) -> None:
        """It waits in its line."""
        lines = self._classes[ticket.key.work_class]
        line = lines.get(ticket.key)
        if line is None:
            line = lines[ticket.key] = Line(ticket.key)
        line.push(ticket)

    def drop(self, ticket: Ticket) -> None:
        """It waits no more."""
        line = self._classes[ticket.key.work_class].get(ticket.key)
        if line is not None:
            line.drop(ticket)
            self._swept(line)

    def take(self, line: Line, tokens: int, items: int) -> list[Piece]:
        """The next quantum of a line."""
        pieces = line.take(tokens, items)
        self._swept(line)
        return pieces

    def of(self, work_class: str) -> list[tuple[Ticket, Line]]:
        """The lines of a class with their heads, first the one that is next."""
        found = []
        for line in tuple(self._classes[work_class].values()):
            head = line.head
            if head is None:
                del self._classes[work_class][line.key]
            else:
                found.append((head, line))
        if len(found) > 1:
            found.sort(key=lambda pair: pair[0].rank)
        return found

    def all(self) -> Iterator[Line]:
        """Every line."""
        for lines in self._classes.values():
            yield from lines.values()

    def waits(self, work_class: str) -> bool:
        """Whether a class has anything."""
        return bool(self._classes[work_class])

    def _swept(self, line: Line) -> None:
        if not line.waiting and line.head is None:
            self._classes[line.key.work_class].pop(line.key, None)
