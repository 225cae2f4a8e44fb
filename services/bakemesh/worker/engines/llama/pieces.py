"""Bytes of tokens to text that may be told. Pure.

Guarantees: what is told is never taken back. So a character whose bytes are not all here is held, and so is
what may yet become a stop string. A stop string ends the text right before it, and is no part of it. The told
pieces joined are `text`. A character that is still incomplete at the end is left out; bytes that can be no
character are U+FFFD.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable


class Pieces:
    """Collects a generation's text; `push` gives what may be told now."""

    def __init__(self, stop: Iterable[str] = ()) -> None:
        self._stop = tuple(each for each in stop if each)
        self._longest = max(map(len, self._stop), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._told: list[str] = []
        self.stopped = False

    def push(self, piece: bytes) -> str:
        """Takes a token's bytes. After a stop string was met, `stopped` is True and nothing more is taken."""
        if self.stopped:
            return ""
        self._held += self._decoder.decode(piece)
        at = self._first_stop()
        if at is not None:
            self._held = self._held[:at]
            self.stopped = True
            return self.end()
        return self._tell(len(self._held) - self._may_become_stop())

    def end(self) -> str:
        """No more comes: what was held for a stop string is text after all."""
        return self._tell(len(self._held))

    @property
    def text(self) -> str:
        """All that was told."""
        return "".join(self._told)

    def _tell(self, count: int) -> str:
        told, self._held = self._held[:count], self._held[count:]
        if told:
            self._told.append(told)
        return told

    def _first_stop(self) -> int | None:
        """Where the stop string that is whole first begins: the same however the text was cut into pieces."""
        found = [(at + len(each), at) for each in self._stop if (at := self._held.find(each)) >= 0]
        return min(found)[1] if found else None

    def _may_become_stop(self) -> int:
        """The length of the longest end of the held text that a stop string begins with."""
        for length in range(min(self._longest - 1, len(self._held)), 0, -1):
            end = self._held[-length:]
            if any(each.startswith(end) for each in self._stop):
                return length
        return 0
