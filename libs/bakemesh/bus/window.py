"""The go-back-N window of a stream's single writer, as a value: what may be sent, what is stored, what is to
be asked.

    UNSURE ── every sequence up to last_seq compared ──→ FLOWING
    FLOWING ── refused: another sequence; lost: no answer, link down ──→ UNSURE
    FLOWING ── refused: no room ──→ FULL ── the one row that tries is acknowledged ──→ FLOWING
                                     FULL ── refused otherwise, lost ──→ UNSURE

Guarantees, for any schedule of losses, refusals and foreign messages: rows are stored in the order in which
they were added, without a hole and without a repeat. Each send names the sequence before its own; one whose
predecessor is not acknowledged yet also names that row's id. The sequence alone is not enough: a foreign
message that takes the place of row A makes the sequence right for B, and B would be stored without A. With
both, a row is stored right behind its predecessor or not at all, so an acknowledgement acknowledges every row
before it, and a refusal refuses every one behind it.

Left out: time, the network, what a row carries besides id and size. `writer` is the shell.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

SURVEY_LIMIT = 8192  # more than any writer has in flight: what lies further back is not searched
_REMEMBERED = 4096


class RowLike(Protocol):
    """What the window has to know of a row."""

    @property
    def msg_id(self) -> str:
        """Its Nats-Msg-Id, used by no other row."""

    @property
    def size(self) -> int:
        """Its bytes."""


R = TypeVar("R", bound=RowLike)


class Phase(Enum):
    """What the window knows of its stream."""

    UNSURE = "what is stored behind `base` is to be asked"
    FLOWING = "rows may be sent"
    FULL = "the store has no room: one row at a time tries"


class Refusal(Enum):
    """Why a send was refused."""

    STALE = "the stream is at another sequence"
    FULL = "the store has no room"
    OTHER = "anything else, to be tried again"


class Send(NamedTuple, Generic[R]):
    """One row to be sent: it goes to `sequence` in the stream, behind `behind` (None: the sequence alone
    tells).
    """

    row: R
    epoch: int
    sequence: int
    behind: str | None


@dataclass(frozen=True, slots=True)
class Foreign:
    """A message in the stream that this writer did not write."""

    sequence: int
    msg_id: str


@dataclass(frozen=True, slots=True)
class Late:
    """A row that was taken back and stored all the same: it was still on its way in a connection that
    broke.
    """

    sequence: int
    msg_id: str


@dataclass(frozen=True, slots=True)
class Purged:
    """Rows that were stored and removed again before their acknowledgement was seen; `sequences`, both ends
    in.
    """

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Regressed:
    """The stream ends before what was acknowledged: the server lost it (power cut), or the stream was made
    anew.
    """

    expected: int
    last: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Sequences that were not searched for rows, being too many; both ends in."""

    first: int
    last: int


Note = Foreign | Late | Purged | Regressed | Skipped


class Window(Generic[R]):
    """Rows that are not known to be stored, in order. `base`: every sequence up to it is resolved.

    `base` None: nothing is known of the stream; it begins behind what is there.
    """

    def __init__(self, base: int | None, *, messages: int = 256, size: int = 16 * 2**20) -> None:
        self.base = 0 if base is None else base
        self.limit, self.limit_bytes = messages, size
        self.phase = Phase.UNSURE
        self.epoch = 0
        self.foreign = 0
        self.bytes = 0
        self.notes: list[Note] = []
        self._adopt = base is None
        self._rows: deque[R] = deque()
        self._sent = 0  # rows at the head that are in flight
        self._maybe: int | None = None  # rows at the head that may be stored; None: any
        self._cut: tuple[int, Refusal] | None = None  # the lowest sequence refused in this epoch
        self._tries = False
        self._held = 0
        self._last: int | None = None  # a survey: the stream's last sequence, and how far it has come
        self._cursor = 0
        self._leap = False
        self._gaps: list[int] = []
        self._withdrawn: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def in_flight(self) -> int:
        """Rows that were sent in this epoch and not answered."""
        return self._sent

    @property
    def head(self) -> R | None:
        """The first row that is not known to be stored."""
        return self._rows[0] if self._rows else None

    @property
    def rows(self) -> list[R]:
        """The rows that are not known to be stored, in order."""
        return list(self._rows)

    # -- rows in and out

    def room(self, size: int) -> bool:
        """Whether a row of `size` bytes may be added; into an empty window always."""
        rows = self._rows
        return not rows or (len(rows) < self.limit and self.bytes + size <= self.limit_bytes)

    def add(self, row: R) -> None:
        """A further row, behind all others. Whether there is room is the caller's question."""
        self._rows.append(row)
        self.bytes += row.size

    def take(self) -> Send[R] | None:
        """The next row to send, now counted as in flight; None when none may go."""
        sent = self._sent
        if self.phase is Phase.FLOWING:
            if self._held or self._cut is not None or sent >= len(self._rows):
                return None
        elif self.phase is Phase.FULL:
            if self._held or not self._tries or not self._rows:
                return None
            self._tries = False
        else:
            return None
        rows = self._rows
        self._sent = sent + 1
        behind = rows[sent - 1].msg_id if sent else None
        return Send(rows[sent], self.epoch, self.base + 1 + sent, behind)

    @property
    def ready(self) -> bool:
        """FLOWING: whether a row waits that may be sent."""
        return (
            self.phase is Phase.FLOWING
            and not self._held
            and self._cut is None
            and self._sent < len(self._rows)
        )

    def retry(self) -> None:
        """FULL: lets one row try again, unless one is on its way."""
        self._tries = self._sent == 0

    def unsent(self, send: Send[R]) -> None:
        """A row that was taken and cannot be sent ever, being refused before it left: it is taken out."""
        index = send.sequence - self.base - 1
        if send.epoch == self.epoch and index < len(self._rows) and self._rows[index] is send.row:
            del self._rows[index]
            self._sent = min(self._sent, index)
            self.bytes -= send.row.size

    def hold(self) -> None:
        """Lets no further row go until `release`: what is in flight is to settle."""
        self._held += 1

    def release(self) -> None:
        """Ends a `hold`."""
        self._held -= 1

    @property
    def held(self) -> bool:
        """Whether somebody holds it."""
        return self._held > 0

    def unsettled(self, predicate: Callable[[R], bool]) -> bool:
        """Whether the fate of a row that `predicate` takes is not known."""
        return any(predicate(row) for row, _ in zip(self._rows, range(self._open()), strict=False))

    def drop(self, predicate: Callable[[R], bool]) -> list[R]:
        """Takes back the rows that `predicate` takes and that are not stored for certain."""
        first = self._open()
        taken = [row for index, row in enumerate(self._rows) if index >= first and predicate(row)]
        if taken:
            gone = {row.msg_id for row in taken}
            self._rows = deque(row for row in self._rows if row.msg_id not in gone)
            for row in taken:
                self.bytes -= row.size
                self._withdrawn[row.msg_id] = None
            while len(self._withdrawn) > _REMEMBERED:
                self._withdrawn.popitem(last=False)
        return taken

    def drop_all(self) -> list[R]:
        """Empties the window, whatever may be stored: the end of its writer."""
        rows = list(self._rows)
        self._rows.clear()
        self.bytes = self._sent = 0
        return rows

    def _open(self) -> int:
        """How many rows at the head may be stored."""
        if self.phase is not Phase.UNSURE:
            return self._sent
        return len(self._rows) if self._maybe is None else min(self._maybe, len(self._rows))

    # -- answers

    def acked(self, epoch: int, sequence: int, stored_at: int) -> list[tuple[R, int]]:
        """The row sent to `sequence` is stored at `stored_at`: the rows that are stored now, with their
        sequences.
        """
        if epoch != self.epoch or not self.base < sequence <= self.base + self._sent:
            return []
        if stored_at != sequence:
            # A duplicate by its id: it is stored somewhere else. Behind base, a survey finds it; before, it
            # never would.
            settled: list[R] = []
            if stored_at <= self.base and sequence == self.base + 1:
                settled = self._settle(1)
                self.base -= 1
            self.lost()
            return [(row, stored_at) for row in settled]
        first = self.base + 1
        stored = [(row, first + index) for index, row in enumerate(self._settle(sequence - self.base))]
        if self.phase is Phase.FULL:
            self.phase = Phase.FLOWING
        if self._cut is not None:
            self._turn()
        return stored

    def refused(self, epoch: int, sequence: int, why: Refusal) -> None:
        """The row sent to `sequence` was refused, and every one behind it will be."""
        if epoch != self.epoch or not self.base < sequence <= self.base + self._sent:
            return
        if self._cut is None or sequence < self._cut[0]:
            self._cut = (sequence, why)
        self._turn()

    def lost(self) -> None:
        """Answers will not come any more (time, a broken link): what was in flight may be stored or not."""
        if self.phase is not Phase.UNSURE:
            self._maybe = self._sent
        self._begin(Phase.UNSURE)

    def _turn(self) -> None:
        """Once every row before the refused one is answered, a new epoch begins with the refused one."""
        if self._cut is None or self._cut[0] != self.base + 1:
            return
        why = self._cut[1]
        # Refused for room: not stored, for certain. For its sequence: perhaps because an earlier send of it
        # is there.
        self._maybe = 0 if why is Refusal.FULL else self._sent
        self._begin(Phase.FULL if why is Refusal.FULL else Phase.UNSURE)

    def _begin(self, phase: Phase) -> None:
        self.phase = phase
        self.epoch += 1
        self._sent = 0
        self._cut = None
        self._tries = False
        self._last = None

    def _settle(self, count: int) -> list[R]:
        rows = [self._rows.popleft() for _ in range(count)]
        for row in rows:
            self.bytes -= row.size
        self.base += count
        self._sent = max(0, self._sent - count)
        if self._maybe is not None:
            self._maybe = max(0, self._maybe - count)
        return rows

    # -- the survey: which rows are stored

    def survey(self, last: int) -> list[tuple[R, int]]:
        """UNSURE: the stream ends at `last`. Then look at each `wanted` sequence and tell `seen`."""
        if self._adopt:
            self._adopt, self.base, self._maybe = False, last, 0
        if last < self.base:
            self.notes.append(Regressed(self.base, last))
            self.base = last
        if last - self.base > SURVEY_LIMIT:
            self.notes.append(Skipped(self.base + 1, last - SURVEY_LIMIT))
            self.base = last - SURVEY_LIMIT
        self._last, self._cursor, self._gaps = last, self.base + 1, []
        self._leap = True
        return self._finish()

    @property
    def surveying(self) -> bool:
        """Whether a survey has begun and is not at its end."""
        return self._last is not None

    def wanted(self, count: int = 1) -> list[int]:
        """The next sequences to look at, at most `count`; none when the survey is over, or waits for a row to
        compare.

        The last one first: if it is the row that belongs there, so are all before it.
        """
        if self._last is None or not self._rows or self._cursor > self._last:
            return []
        if self._leap and self._last > self._cursor and self._last - self.base <= len(self._rows):
            return [self._last]
        # No further than there are rows to compare with: what is behind may be a row that is not here yet.
        count = min(count, len(self._rows))
        return list(range(self._cursor, min(self._last, self._cursor + count - 1) + 1))

    def seen(self, sequence: int, msg_id: str | None) -> list[tuple[R, int]]:
        """What is at `sequence`: a message with this id ("" without one), or nothing (None: removed).

        Gives the rows that are stored, with their sequences; those stored and removed again are among them.
        """
        if self._last is None or not self._rows:
            return []
        if self._leap:
            self._leap = False
            index = sequence - self.base - 1
            if index > 0:  # the look at the last one
                if msg_id is None or index >= len(self._rows) or self._rows[index].msg_id != msg_id:
                    return []
                first = self.base + 1
                stored = [(row, first + at) for at, row in enumerate(self._settle(index + 1))]
                self._cursor = self.base + 1
                return stored + self._finish()
        if sequence != self._cursor:
            return []
        self._cursor += 1
        stored = []
        if msg_id is None:
            self._gaps.append(sequence)
        else:
            stored = self._compare(sequence, msg_id)
        return stored + self._finish()

    def _compare(self, sequence: int, msg_id: str) -> list[tuple[R, int]]:
        # Rows are stored in order, so this is the first row, or a later one if those before it are in the
        # gaps.
        for index, row in zip(range(len(self._gaps) + 1), self._rows, strict=False):
            if row.msg_id == msg_id:
                places = [*self._gaps[len(self._gaps) - index :], sequence]
                if index:
                    self.notes.append(Purged(places[0], places[-2]))
                rows = self._settle(index + 1)
                self._gaps, self.base = [], sequence
                return list(zip(rows, places, strict=True))
        if msg_id in self._withdrawn:
            self.notes.append(Late(sequence, msg_id))
        else:
            self.foreign += 1
            self.notes.append(Foreign(sequence, msg_id))
        if not self._gaps:
            self.base = sequence
        return []

    def _finish(self) -> list[tuple[R, int]]:
        if self._last is None or self._cursor <= self._last:
            return []
        last, gaps = self._last, self._gaps
        # Removed messages at the end, with no row behind them: ours, as far as rows of ours may have been
        # stored.
        count = min(len(gaps), self._open())
        stored: list[tuple[R, int]] = []
        if count:
            self.notes.append(Purged(gaps[0], gaps[count - 1]))
            stored = list(zip(self._settle(count), gaps, strict=False))
        self.base, self._gaps, self._maybe = last, [], 0
        self._begin(Phase.FLOWING)
        return stored
