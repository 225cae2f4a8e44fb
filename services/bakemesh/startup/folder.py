"""Its folder in the state folder, and the lock that makes it the only one there."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

JOURNAL, LOCK = "journal.db", "startup.lock"


class StartupTaken(Exception):
    """Raised when a Startup Supervisor runs on the folder already; the process exits with code 6."""


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Makes the folder, for its user alone, and holds its lock. Raises StartupTaken, OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            held = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            raise StartupTaken(
                f"{folder}: a Startup Supervisor (pid {held}) runs on it already; "
                "stop it, or give another --state"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)
