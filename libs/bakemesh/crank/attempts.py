"""How often each stored post was given to a crank that did not come through with it: a small file.

One line of a fixed width a consumer, written in place with one call before the crank gets the post: a killed
process leaves it whole, and a post costs microseconds. What a power cut takes is a count, never a post.
JetStream's own count of deliveries will not do: it also goes up by outages, and by deliveries to the dead.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bakemesh.protocol.numerals import whole

log = logging.getLogger(__name__)

_WIDTH: Final = 128


class Attempts:
    """The file of one component; `consumers` are those that it has now, others are forgotten."""

    def __init__(self, path: Path, consumers: Iterable[str]) -> None:
        self._path = path
        known = _read(path)
        self._given = {name: known.get(name, (0, 0)) for name in consumers}
        self._places = {name: place * _WIDTH for place, name in enumerate(self._given)}
        self._fd: int | None = None
        if not self._given:
            return
        try:
            new = path.with_suffix(".new")
            new.write_bytes(b"".join(_line(name, *given) for name, given in self._given.items()))
            os.replace(new, path)
            self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            self._lost(error)

    def of(self, consumer: str, sequence: int) -> int:
        """How often this post was given."""
        noted, given = self._given[consumer]
        return given if noted == sequence else 0

    def note(self, consumer: str, sequence: int) -> None:
        """It is given once more; the file has it when this returns."""
        given = self.of(consumer, sequence) + 1
        self._given[consumer] = (sequence, given)
        if self._fd is not None:
            try:
                os.pwrite(self._fd, _line(consumer, sequence, given), self._places[consumer])
            except OSError as error:
                self._lost(error)

    def close(self) -> None:
        """Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _lost(self, error: OSError) -> None:
        log.warning("%s: a post that ends its crank is not told from others any more: %s", self._path, error)
        self.close()


def _line(name: str, sequence: int, given: int) -> bytes:
    return f"{name} {sequence} {given}".ljust(_WIDTH - 1).encode() + b"\n"


def _read(path: Path) -> dict[str, tuple[int, int]]:
    """What the file says; a line that is none is passed over."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        words = line.split()
        numbers = [whole(word) for word in words[1:]]
        match numbers:
            case [int(first), int(second)]:
                found[words[0]] = (first, second)
    return found
