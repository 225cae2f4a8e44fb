"""A file of this machine on its way into the cache: linked or copied first, then digested, then kept.

What is digested is the staged file: whatever becomes of the source meanwhile, the name in the cache is that
of the content. A hard link shares its file with the source: a source that is *written to* later (not
replaced) breaks the cached file too, which everybody who loads it notices by its digest.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bakemesh.artifacts import files
from bakemesh.artifacts.digests import Progress, hash_open, open_plain, unchanged

if TYPE_CHECKING:
    from bakemesh.artifacts.cache import Cache


class Staged:
    """A digested file that is not kept yet. `keep` or `drop` ends it; so does leaving its `with`."""

    def __init__(self, cache: Cache, fd: int, path: Path, digest: str, *, linked: bool) -> None:
        self._cache, self._fd, self._linked = cache, fd, linked
        self.path, self.digest = path, digest
        self.size = os.fstat(fd).st_size
        self._open = True

    def keep(self) -> Path:
        """Puts it under its digest; its path there, for good. Raises OSError."""
        if not self._linked:
            os.fchmod(self._fd, 0o440)
        os.fsync(self._fd)
        path = self._cache.settle(self.path, self.digest)
        self._end()
        return path

    def drop(self) -> None:
        """Forgets it. Again, or after `keep`: nothing."""
        if self._open:
            self.path.unlink(missing_ok=True)
            self._end()

    def _end(self) -> None:
        if self._open:
            self._open = False
            os.close(self._fd)

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, *failure: object) -> None:
        self.drop()


def stage(
    cache: Cache,
    folder: Path,
    source: Path,
    *,
    link: bool,
    hashing: Progress | None,
    copying: Progress | None,
) -> Staged:
    """See Cache.stage."""
    opened = open_plain(source)
    fd, path = files.new_temporary(folder)
    try:
        linked = link and _linked(opened, source, path)
        if linked:
            os.close(fd)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        elif not files.clone(opened, fd):
            before = os.fstat(opened)
            files.copy(opened, fd, copying)
            unchanged(source, before, os.fstat(opened), os.fstat(fd).st_size)
        return Staged(cache, fd, path, hash_open(fd, source, hashing), linked=linked)
    except BaseException:
        os.close(fd)
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(opened)


def _linked(opened: int, source: Path, path: Path) -> bool:
    """Whether `path` is now a hard link to the opened file: on one disk, and the source not a symlink."""
    beside = path.with_suffix(".link")
    try:
        os.link(source, beside, follow_symlinks=True)
    except OSError:
        return False
    try:
        if os.path.samestat(os.fstat(opened), os.lstat(beside)):
            beside.replace(path)
            return True
    except OSError:
        pass
    beside.unlink(missing_ok=True)
    return False
