"""A folder of files by their digest: `<folder>/sha256/<2 hex>/<64 hex>`.

Guarantees: a file has its name only when it is whole, verified and on the disk (rename); its content is
never changed in place; a temporary that a crash left behind is gone after the next start. Several processes
may use one folder. Left out: limits and eviction (who keeps files says what may go: `drop`), and proving
again what is here (a worker does, whenever it loads a file).

Everything here blocks; in an event loop, call it in a thread.
"""

from __future__ import annotations

from pathlib import Path

from bakemesh.artifacts import files, staging
from bakemesh.artifacts.digests import Progress, hash_file, hex_of
from bakemesh.artifacts.errors import ArtifactBroken
from bakemesh.artifacts.receiving import Receiver
from bakemesh.artifacts.staging import Staged


class Cache:
    """The folder; made, for its user alone, where it is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files, self._temporary = folder / "sha256", folder / "incoming"
        for each in (folder, self._files, self._temporary):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.remove_leftovers(self._temporary)

    def path(self, digest: str) -> Path | None:
        """Where the file is, None where it is not here. Raises ValueError for what is no digest."""
        found = self._place(digest)
        return found if found.is_file() else None

    def size(self, digest: str) -> int | None:
        """Its bytes, None where it is not here."""
        found = self.path(digest)
        return None if found is None else found.stat().st_size

    def digests(self) -> list[str]:
        """All that is here, in order."""
        return sorted(f"sha256:{each.name}" for each in self._files.glob("*/*"))

    def stage(
        self,
        source: Path,
        *,
        link: bool = True,
        hashing: Progress | None = None,
        copying: Progress | None = None,
    ) -> Staged:
        """Links a file (`link`, and where the disk is the same), else clones or copies it, and digests it.

        Raises ArtifactBroken where it is no plain file or is written to meanwhile, OSError.
        """
        return staging.stage(self, self._temporary, source, link=link, hashing=hashing, copying=copying)

    def take(self, source: Path, digest: str, *, link: bool = True, progress: Progress | None = None) -> Path:
        """Has the file `source` here, under its digest; verified. One that is here already is left.

        Raises ArtifactBroken where its digest is another one; as `stage`.
        """
        if (here := self.path(digest)) is not None:
            return here
        with self.stage(source, link=link, hashing=progress) as staged:
            if staged.digest != digest:
                raise ArtifactBroken(f"{source} has the digest {staged.digest}, not {digest}")
            return staged.keep()

    def receive(self, digest: str, size: int) -> Receiver:
        """A file that comes in pieces. Raises ValueError for what is no digest, OSError."""
        return Receiver(self, self._temporary, digest, size)

    def verify(self, digest: str, progress: Progress | None = None) -> bool:
        """Whether the file is here and is what its name says. Raises OSError."""
        path = self.path(digest)
        return path is not None and hash_file(path, progress) == digest

    def drop(self, digest: str) -> bool:
        """Removes the file; whether it was here. Who has it open keeps what it reads."""
        try:
            self._place(digest).unlink()
        except FileNotFoundError:
            return False
        return True

    def settle(self, temporary: Path, digest: str) -> Path:
        """Renames a whole, verified, synced file to its place: the last step of Staged and Receiver."""
        place = self._place(digest)
        made = not place.parent.exists()
        place.parent.mkdir(mode=0o700, exist_ok=True)
        if made:
            files.sync_folder(self._files)
        temporary.replace(place)
        # Of two links to one file, rename leaves both.
        temporary.unlink(missing_ok=True)
        files.sync_folder(place.parent)
        return place

    def _place(self, digest: str) -> Path:
        name = hex_of(digest)
        return self._files / name[:2] / name
