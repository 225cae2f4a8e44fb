"""A component's output, read from its log while the shim turns it over.

The shim moves the front of `out.log` into a new file (`out.log.new`), takes it off and renames the copy to
`out.log.1`, each older one a number on. So a place in the output is an offset behind the newest older file;
when there are newer ones, it is the same offset in all of them joined. Guarantees: every byte once, in order,
as long as the reader is not outrun by more than the files that are kept; what it was outrun by is counted in
`lost`. Left out: waiting for more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LOG = "out.log"
BLOCK = 256 * 1024


class Mark(NamedTuple):
    """A place: the offset behind the older file of that inode and time of change (0, 0: there is none)."""

    inode: int = 0
    changed: int = 0
    offset: int = 0


class _Older(NamedTuple):
    path: Path
    inode: int
    changed: int
    size: int


def end_of(folder: Path) -> Mark:
    """Where what is written from now on will begin. Exact while nothing writes."""
    older = _older(folder)
    try:
        size = (folder / LOG).stat().st_size
    except OSError:
        size = 0
    return Mark(older[0].inode, older[0].changed, size) if older else Mark(0, 0, size)


def _older(folder: Path) -> list[_Older]:
    """The older files, the newest first."""
    found: list[_Older] = []
    while True:
        path = folder / f"{LOG}.{len(found) + 1}"
        try:
            seen = path.stat()
        except OSError:
            return found
        found.append(_Older(path, seen.st_ino, seen.st_mtime_ns, seen.st_size))


class LogReader:
    """Reads on from a place."""

    def __init__(self, folder: Path, start: Mark) -> None:
        self.folder, self.at = folder, start
        self.lost = 0  # at least so many bytes went before they were read

    def read(self) -> Iterator[bytes]:
        """What there is now, in blocks. Ends early where the log is just being turned over: call again."""
        while block := self._block():
            yield block

    def _block(self) -> bytes:
        older = _older(self.folder)
        before = next((n for n, each in enumerate(older) if (each.inode, each.changed) == self.at[:2]), None)
        # In the middle of a renaming one number is missing, and those behind it are not seen.
        if before is None and (self._turning() or _older(self.folder) != older):
            return b""
        if before is None and self.at.inode:  # outrun: what it was behind is gone, with what followed
            self.lost += 1
            self.at = Mark()
        if before is None:  # it began before there was any older file
            before = len(older)
        for each in reversed(older[:before]):
            if self.at.offset < each.size:
                return self._piece(each)
            self.at = Mark(each.inode, each.changed, self.at.offset - each.size)
        return self._present(older)

    def _piece(self, older: _Older) -> bytes:
        """Out of an older file, which does not change any more."""
        try:
            with open(older.path, "rb") as file:
                seen = os.fstat(file.fileno())
                if (seen.st_ino, seen.st_mtime_ns) != (older.inode, older.changed):
                    return b""  # it has another number by now
                data = os.pread(file.fileno(), BLOCK, self.at.offset)
        except FileNotFoundError:
            return b""
        self.at = self.at._replace(offset=self.at.offset + len(data))
        return data

    def _present(self, older: list[_Older]) -> bytes:
        """Out of the file that is written to, unless its front was taken off meanwhile."""
        if self._turning():
            return b""
        try:
            with open(self.folder / LOG, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                data = os.pread(file.fileno(), BLOCK, self.at.offset)
        except FileNotFoundError:
            return b""
        newest = _older(self.folder)[:1]
        if self._turning() or [each[:3] for each in newest] != [each[:3] for each in older[:1]]:
            return b""
        if size < self.at.offset:  # emptied without a copy: there was no room for one
            self.lost += self.at.offset - size
            self.at = self.at._replace(offset=0)
            return b""
        self.at = self.at._replace(offset=self.at.offset + len(data))
        return data

    def _turning(self) -> bool:
        return (self.folder / f"{LOG}.new").exists()
