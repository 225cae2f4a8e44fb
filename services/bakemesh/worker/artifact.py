"""Opens an artifact once, proves its digest, and hands on the open file.

Guarantees: what is loaded is what was digested, whatever becomes of the path in between: the engine gets the
open file. A file that is written to meanwhile is found by its size and time. Left out: whether the content is
a model (the engine says), and a write that forges both.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from bakemesh.worker.engines.base import EngineError

_CHUNK = 1 << 20
_HEX = frozenset("0123456789abcdef")


class ArtifactInvalid(EngineError):
    """Raised when a file is not there, is no file, or is not the one that the host means."""

    def __init__(self, msg: str) -> None:
        super().__init__("artifact_invalid", msg)


def expected(digest: str, allow_unverified: bool) -> str | None:
    """The hex digits to find; None: nothing is to be proven. Raises ArtifactInvalid."""
    if not digest:
        if allow_unverified:
            return None
        raise ArtifactInvalid("no artifact_digest: give one, or runtime_config.allow_unverified=yes")
    found = digest.removeprefix("sha256:").lower()
    if len(found) != 64 or not _HEX.issuperset(found):
        raise ArtifactInvalid(f"artifact_digest {digest[:80]!r} is no sha256: 64 hex digits are meant")
    return found


@contextmanager
def proven(path: str, digest: str, allow_unverified: bool) -> Iterator[int]:
    """The open file, at its beginning. Raises ArtifactInvalid, also at the end, if it changed meanwhile."""
    wanted = expected(digest, allow_unverified)
    try:
        # Not blocking: a FIFO of that name must not hold the worker.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        raise ArtifactInvalid(f"{path!r:.300} cannot be opened: {error}") from error
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise ArtifactInvalid(f"{path} is no file")
        if wanted is not None and (found := _sha256(fd, path)) != wanted:
            raise ArtifactInvalid(f"{path} has the digest sha256:{found}; sha256:{wanted} was asked for")
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
        after = os.fstat(fd)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ArtifactInvalid(f"{path} was written to while it was loaded")
    finally:
        os.close(fd)


def _sha256(fd: int, path: str) -> str:
    import hashlib  # OpenSSL is not part of a worker's start

    state, chunk = hashlib.sha256(), memoryview(bytearray(_CHUNK))
    try:
        while count := os.readv(fd, [chunk]) if hasattr(os, "readv") else _read(fd, chunk):
            state.update(chunk[:count])
    except OSError as error:
        raise ArtifactInvalid(f"{path} cannot be read: {error}") from error
    return state.hexdigest()


def _read(fd: int, chunk: memoryview) -> int:
    found = os.read(fd, len(chunk))
    chunk[: len(found)] = found
    return len(found)
