"""What was seen, on the disk: so that a request cannot be repeated after a restart.

    seen-0   seen-1      records of 32 bytes; the files are written in turn, and the other one is emptied when
                         all that it holds is stale by itself, or written in the new one

Guarantees: a request is written before its handler begins, so what ran is known after a crash of the process
(kill -9), also after several in a row. It is not forced onto the platter: after a power cut the last seconds
may be missing, and a machine takes longer to come back than a nonce is fresh. A record that was half written
is passed over. The disk holds what came in two windows. One gateway at a time has a folder. Left out: the
decision (`seen`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from bakemesh.axon.seen import CLIENT, DIGEST, Entry
from bakemesh.protocol.axon.freshness import Window

RECORD = 8 + DIGEST + CLIENT
_FILES = ("seen-0", "seen-1")
_SECOND = 1_000_000_000
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC


class FolderInUse(OSError):
    """Raised when another gateway has the folder."""


class Journal:
    """`open`, `read` what was written, `begin` with what of it is still fresh; then `write`, and `turn` when
    it is `due`.
    """

    def __init__(self, folder: Path, window: Window) -> None:
        self.folder = folder
        self._turn_ns = window.life_ns + _SECOND
        self._at = 0
        self._began_ns = 0
        self._lock = -1
        self._file = -1

    def open(self) -> Self:
        """Takes the folder. Raises FolderInUse, OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            told = f"{self.folder} is used by another gateway; give this one a --name of its own"
            raise FolderInUse(told) from error
        return self

    def read(self) -> Iterator[Entry]:
        """What was written before. Raises OSError."""
        for name in _FILES:
            with contextlib.suppress(FileNotFoundError):
                data = (self.folder / name).read_bytes()
                for at in range(0, len(data) - len(data) % RECORD, RECORD):
                    nonce_ns = int.from_bytes(data[at : at + 8], "big")
                    key = data[at + 8 : at + 8 + DIGEST]
                    yield Entry(data[at + 8 + DIGEST : at + RECORD], key, nonce_ns)

    def begin(self, fresh: Iterable[Entry], now_ns: int) -> None:
        """Goes on with a file that holds just these; only then the old ones go. Raises OSError."""
        file = self._made(0, fresh)
        try:
            (self.folder / _FILES[1]).unlink(missing_ok=True)
        except OSError:
            os.close(file)
            raise
        self._file, self._at, self._began_ns = file, 0, now_ns

    def due(self, now_ns: int) -> bool:
        """Whether it is time to `turn`: the other file holds what is stale, or the clock was set."""
        return abs(now_ns - self._began_ns) > self._turn_ns

    def turn(self, kept: Iterable[Entry], now_ns: int) -> None:
        """Goes on in the other file, which then holds just these: what it held was written before this one
        began. Raises OSError.
        """
        file = self._made(1 - self._at, kept)
        os.close(self._file)
        self._file, self._at, self._began_ns = file, 1 - self._at, now_ns

    def write(self, entry: Entry) -> None:
        """Raises OSError, where it could not be written."""
        written = os.write(self._file, _record(entry))
        if written != RECORD:  # what follows must not be read out of step
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(f"{self.folder}: no room for what was seen")

    def close(self) -> None:
        """Gives the folder back. Idempotent."""
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1

    def _made(self, at: int, entries: Iterable[Entry]) -> int:
        """A file in the place of this one, which is there until it is whole."""
        made = self.folder / "seen-new"
        file = os.open(made, _FLAGS, 0o600)
        try:
            data = memoryview(b"".join(map(_record, entries)))
            while data:
                data = data[os.write(file, data) :]
            os.replace(made, self.folder / _FILES[at])
        except OSError:
            os.close(file)
            raise
        return file


def _record(entry: Entry) -> bytes:
    return entry.nonce_ns.to_bytes(8, "big") + entry.key + entry.client
