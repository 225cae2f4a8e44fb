"""Large payloads beside the journal's tables: append-only files, each written once and removed as a whole.

In SQLite every byte of output is written twice (its log, then its file), summed up and chained page by page;
that cost more than everything else that a Builder does with it. So a row of the outbox says where its payload
lies: file, offset, size. Guarantees: a payload is in its file before the row that names it is committed, so a
crash of the process leaves no row without its payload; a payload that is not whole, after a power cut, is
told from one that is; a file goes only when no row names it or a later one. Bytes without a row (a crash in
between, a transaction that was rolled back) are harmless. Left out: which rows there are.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from pathlib import Path
from typing import NamedTuple

from bakemesh.protocol.numerals import whole

LARGE = 16 * 2**10  # smaller ones are better off in their row
FILE_BYTES = 32 * 2**20
KEPT_BYTES = 2**20  # a file of so little is written on, though nothing of it is needed
ID_BYTES = 16
_HEAD = 256  # an envelope has its id within its first bytes

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where a payload lies."""

    file: int
    offset: int
    size: int


class Payloads:
    """The files in one folder, which is made with the first of them. One process at a time.

    `durable`: `sync` is called before each commit, and a power cut must lose nothing either.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._folder, self._durable = folder, durable
        self._files = sorted(number for name in _names(folder) if (number := whole(name)) is not None)
        self._number = self._files[-1] if self._files else 0
        self._fd = -1
        self._end = 0
        self._dirty = False

    def keep(self, payload: bytes, msg_id: str) -> Place:
        """Appends a payload; it is in the file when this returns. `msg_id`: the id in its envelope, in hex.

        Raises OSError; nothing is kept then.
        """
        if self._fd < 0 or self._end + len(payload) > FILE_BYTES:
            self._begin_file()
        # Its id again behind it: a power cut may leave a file that is long enough and not all there.
        pieces: list[bytes | memoryview] = [payload, bytes.fromhex(msg_id)]
        wanted, written = len(payload) + ID_BYTES, 0
        self._dirty = True
        while written < wanted:
            done = os.pwritev(self._fd, pieces, self._end + written)
            written += done
            if written < wanted:
                if not done:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
                pieces = [memoryview(b"".join(pieces))[done:]]
        place = Place(self._number, self._end, len(payload))
        self._end += wanted
        return place

    def sync(self) -> None:
        """Returns when all that was kept is on the disk."""
        if self._dirty and self._fd >= 0:
            os.fdatasync(self._fd)
        self._dirty = False

    def load(self, place: Place, msg_id: str) -> bytes | None:
        """The payload at a place; None where it is not there as it was kept."""
        try:
            with open(self._path(place.file), "rb") as file:
                file.seek(place.offset)
                found = file.read(place.size + ID_BYTES)
        except FileNotFoundError:
            return None
        payload, trailer = found[: place.size], found[place.size :]
        wanted = bytes.fromhex(msg_id)
        return payload if trailer == wanted and wanted in payload[:_HEAD] else None

    def tidy(self, oldest: int | None) -> None:
        """Removes what no row needs. `oldest`: the lowest file that a row names, None: there is no such
        row.
        """
        if oldest is None and self._end > KEPT_BYTES:
            self._close_file()
        needed = self._number if oldest is None else oldest
        while self._files and (self._files[0] < needed or (oldest is None and self._fd < 0)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(self._files[0]))
            del self._files[0]

    def close(self) -> None:
        """Closes the file; it is not written on afterwards."""
        self._close_file()

    def _begin_file(self) -> None:
        if self._durable:
            self.sync()
        self._close_file()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._path(self._number + 1)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if self._durable:
            for folder in (self._folder, self._folder.parent):
                _sync_folder(folder)
        self._number += 1
        self._files.append(self._number)
        self._end = 0

    def _close_file(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1
        self._end = 0

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010}"


def _sync_folder(folder: Path) -> None:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
