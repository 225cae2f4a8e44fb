"""Digests as they are written everywhere: `sha256:<64 hex>`."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from bakemesh.artifacts.errors import ArtifactBroken

Progress = Callable[[int, int], None]  # bytes done, bytes in all

PREFIX = "sha256:"
_HEX = re.compile(r"[0-9a-f]{64}")
CHUNK = 1 << 20


def hex_of(digest: str) -> str:
    """The 64 hex digits of `sha256:<hex>`. Raises ValueError: a digest becomes a path."""
    found = digest.removeprefix(PREFIX)
    if not digest.startswith(PREFIX) or _HEX.fullmatch(found) is None:
        raise ValueError(f"{digest[:80]!r} is no digest: sha256:<64 hex digits> is meant")
    return found


def hash_file(path: Path, progress: Progress | None = None) -> str:
    """The digest of a file's content, read in pieces of a mebibyte.

    Raises ArtifactBroken where it is no plain file or is written to meanwhile, OSError.
    """
    fd = open_plain(path)
    try:
        return hash_open(fd, path, progress)
    finally:
        os.close(fd)


def open_plain(path: Path) -> int:
    """Opens a plain file for reading; a FIFO of that name holds nobody. Raises ArtifactBroken, OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ArtifactBroken(f"{path} is no plain file")
    return fd


def hash_open(fd: int, path: Path, progress: Progress | None = None) -> str:
    """As hash_file, of an open file, from its beginning. `path` is for messages."""
    before = os.fstat(fd)
    state, buffer, done = hashlib.sha256(), memoryview(bytearray(CHUNK)), 0
    # One byte more than there was is enough to know that it grows: it might do so for ever.
    while done <= before.st_size and (count := os.preadv(fd, [buffer], done)):
        state.update(buffer[:count])
        done += count
        if progress is not None:
            progress(done, max(done, before.st_size))
    unchanged(path, before, os.fstat(fd), done)
    return PREFIX + state.hexdigest()


def unchanged(path: Path, before: os.stat_result, after: os.stat_result, read: int) -> None:
    """Raises ArtifactBroken where a file was written to while `read` bytes of it were read."""
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or read != after.st_size:
        raise ArtifactBroken(f"{path} was written to while it was read")
