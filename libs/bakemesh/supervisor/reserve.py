"""Reserved RecipeID numbers on disk: `<folder>/ids/<mesh>.<supervisor>.json`, a list of [next, end) ranges.

Guarantees: a number leaves the file, synced, before anybody uses it, and under a lock that all processes of
the machine share; so a crash at any moment loses numbers and never repeats one. A file that cannot be
understood is an error (StateDamaged), never a fresh start. Left out: where the numbers come from (see
`mint`).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bakemesh.supervisor.errors import StateDamaged

Ranges = list[tuple[int, int]]


class Reserve:
    """The reserve of one Supervisor of one mesh. Its calls block; they take a file lock and sync."""

    def __init__(self, folder: Path, mesh: str, supervisor: str) -> None:
        self._folder = folder / "ids"
        self._file = self._folder / f"{mesh}.{supervisor}.json"
        self._lockfile = self._folder / f"{mesh}.{supervisor}.lock"

    def take(self, count: int) -> tuple[tuple[int, int] | None, int]:
        """((first, how many), what is left). At most `count` numbers, all from one range; None if there are
        none.
        """
        with self._locked():
            ranges = self._read()
            if not ranges:
                return None, 0
            first, end = ranges[0]
            stop = min(first + count, end)
            rest = [(stop, end), *ranges[1:]] if stop < end else ranges[1:]
            self._write(rest)
            return (first, stop - first), sum(until - since for since, until in rest)

    def add(self, first: int, count: int) -> None:
        """Puts a block that was won from the counter behind the others."""
        with self._locked():
            self._write([*self._read(), (first, first + count)])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A lock file of its own, never replaced: a lock on the data file would be lost with each rename.
        held = os.open(self._lockfile, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def _read(self) -> Ranges:
        try:
            text = self._file.read_text("utf-8")
        except FileNotFoundError:
            return []
        try:
            ranges = [(int(first), int(end)) for first, end in json.loads(text)["ranges"]]
        except (ValueError, TypeError, KeyError) as error:
            raise StateDamaged(
                f'{self._file}: expected {{"ranges": [[next, end], …]}}, found {text[:80]!r}; remove it '
                "only if the mesh's id bucket is intact: numbers then come from the counter there"
            ) from error
        if any(not 0 < first < end for first, end in ranges):
            raise StateDamaged(f"{self._file}: a range is empty or not positive: {ranges}")
        return ranges

    def _write(self, ranges: Ranges) -> None:
        fresh = self._file.with_suffix(".new")
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump({"ranges": ranges}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._file)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
