"""A file that comes in pieces, from another node: verified whole before it has a name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bakemesh.artifacts import files
from bakemesh.artifacts.digests import hash_open, hex_of
from bakemesh.artifacts.errors import ArtifactBroken

if TYPE_CHECKING:
    from bakemesh.artifacts.cache import Cache


class Receiver:
    """One file on its way in. Pieces may come in any order; two receivers of one digest do not meet."""

    def __init__(self, cache: Cache, folder: Path, digest: str, size: int) -> None:
        hex_of(digest)
        self.digest, self.size = digest, size
        self._cache = cache
        self._fd, self._path = files.new_temporary(folder)
        self._open = True

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Takes a piece. Raises ArtifactBroken where it does not lie within `size`, OSError."""
        length = memoryview(data).nbytes
        if not self._open:
            raise ArtifactBroken(f"{self.digest}: it is received or given up already")
        if offset < 0 or offset + length > self.size:
            raise ArtifactBroken(
                f"{self.digest}: bytes {offset} to {offset + length} came of a file of {self.size}"
            )
        files.write_all(self._fd, data, offset)

    def finish(self) -> Path:
        """The path of the whole file in the cache. Raises ArtifactBroken (and gives up), OSError."""
        if not self._open:
            raise ArtifactBroken(f"{self.digest}: it is received or given up already")
        try:
            if (found := os.fstat(self._fd).st_size) != self.size:
                raise ArtifactBroken(f"{self.digest}: {found} of {self.size} bytes came")
            if (digest := hash_open(self._fd, self._path)) != self.digest:
                raise ArtifactBroken(f"{self.digest}: what came has the digest {digest}")
            os.fchmod(self._fd, 0o440)
            os.fsync(self._fd)
            return self._cache.settle(self._path, self.digest)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Gives up what came. Again, or after `finish`: nothing."""
        if self._open:
            self._open = False
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
