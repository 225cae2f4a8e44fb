"""Temporary files of a cache, and copies.

A temporary is locked (flock) by who writes it: a process that ends, however it ends, lets go of the lock, and
the next one to open the cache removes what nobody holds. Two processes may share a cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from bakemesh.artifacts.digests import CHUNK, Progress

_FICLONE = 0x40049409  # Linux: the new file shares the old one's blocks until one of them is written to


def new_temporary(folder: Path) -> tuple[int, Path]:
    """An empty file of our own there, open for reading and writing, locked."""
    path = folder / secrets.token_hex(8)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd, path


def remove_leftovers(folder: Path) -> int:
    """Removes what no living process holds; how many."""
    removed = 0
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed += 1
            finally:
                os.close(fd)
    return removed


def clone(source: int, target: int) -> bool:
    """Makes `target` the same as `source` without copying, where the disk can."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def copy(source: int, target: int, progress: Progress | None = None) -> None:
    """Copies all of it, in the kernel where that can. Raises OSError."""
    total, done = os.fstat(source).st_size, 0
    while count := _piece(source, target, done):
        done += count
        if progress is not None:
            progress(done, max(done, total))


def _piece(source: int, target: int, at: int) -> int:
    if hasattr(os, "copy_file_range"):
        with contextlib.suppress(OSError):  # not between these disks: by hand
            return os.copy_file_range(source, target, 16 * CHUNK, at, at)
    data = os.pread(source, CHUNK, at)
    write_all(target, data, at)
    return len(data)


def write_all(fd: int, data: bytes | memoryview, at: int) -> None:
    """Writes every byte there. Raises OSError."""
    rest = memoryview(data).cast("B")
    while rest:
        count = os.pwrite(fd, rest, at)
        rest, at = rest[count:], at + count


def sync_folder(path: Path) -> None:
    """What was renamed there stays renamed when the power fails."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
