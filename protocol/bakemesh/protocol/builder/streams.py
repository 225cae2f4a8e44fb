"""The two stream guards: what a reader, and the Builder itself, holds every Status serial and Data seq
against.

Source: protocol/builder-v1.md, "The Status stream", "The Data stream".
"""

from __future__ import annotations

from enum import Enum

from bakemesh.protocol.errors import IntegrityError


class Verdict(Enum):
    """What to do with a message."""

    NEW = "new"
    REPEAT = "repeat"  # seen before: count it once
    HISTORY = "history"  # new, but older than what is shown: it belongs into the history only


class DataGuard:
    """Strict order: last+1 passes, a repeat of last is a duplicate, anything else is latched for good."""

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.latched: IntegrityError | None = None

    def accept(self, seq: int) -> Verdict:
        """NEW or REPEAT. Raises IntegrityError, the same one ever after."""
        if self.latched is not None:
            raise self.latched
        if seq == self.last + 1:
            self.last = seq
            return Verdict.NEW
        if seq == self.last and seq > 0:
            return Verdict.REPEAT
        self.latched = IntegrityError(f"Data seq {seq} after {self.last}: expected {self.last + 1}")
        raise self.latched


class StatusGuard:
    """Idempotent delivery: each serial counts once, in whatever order it comes; `highest` is what to show.

    Memory is bounded by the gaps, not by the bake: serials up to `complete` are one number.
    """

    def __init__(self) -> None:
        self.complete = 0  # every serial up to here was seen
        self.highest = 0
        self._above: set[int] = set()

    def accept(self, serial: int) -> Verdict:
        """NEW, REPEAT, or HISTORY for one that is new but lower than the highest seen."""
        if serial <= self.complete or serial in self._above:
            return Verdict.REPEAT
        verdict = Verdict.NEW if serial > self.highest else Verdict.HISTORY
        self.highest = max(self.highest, serial)
        self._above.add(serial)
        while self.complete + 1 in self._above:
            self.complete += 1
            self._above.discard(self.complete)
        return verdict

    @property
    def missing(self) -> bool:
        """Whether a serial below the highest has not been seen."""
        return bool(self._above)
