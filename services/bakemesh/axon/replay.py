"""Whether a request was here before: what was seen, in memory and on the disk.

Guarantee: where it cannot be written down that a request came, it does not run.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from bakemesh.axon.journal import Journal
from bakemesh.axon.seen import Entry, Novelty, Seen
from bakemesh.protocol.axon.freshness import Window

log = logging.getLogger(__name__)
_SAY_S = 10.0
_DAY_NS = 86_400 * 1_000_000_000
_AHEAD = (
    "%d of the requests that were seen are of more than a day ahead: the clock was wrong, or is, or %s is "
    "damaged. They are kept and take room; where the clock is right, remove the folder while nothing runs, "
    "and start again once a nonce that is fresh now is stale"
)


class Replay:
    """`folder`: None: what was seen is forgotten with the process."""

    def __init__(self, window: Window, most: int, most_of_one: int, folder: Path | None = None) -> None:
        self._seen = Seen(window, most, most_of_one)
        self._journal = None if folder is None else Journal(folder, window)
        self._failing = False
        self._said = 0.0

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def failing(self) -> bool:
        """Whether the last one could not be written down."""
        return self._failing

    def open(self, now_ns: int) -> None:
        """Reads what was seen before. Raises FolderInUse, OSError."""
        if self._journal is None:
            return
        self._journal.open()
        try:
            ahead = 0
            for entry in self._journal.read():
                self._seen.restore(entry, now_ns)
                ahead += entry.nonce_ns > now_ns + _DAY_NS
            if ahead:
                log.warning(_AHEAD, ahead, self._journal.folder)
            self._journal.begin(self._seen.entries(), now_ns)
        except OSError:
            self._journal.close()
            raise

    def close(self) -> None:
        """Idempotent."""
        if self._journal is not None:
            self._journal.close()

    def known(self, entry: Entry) -> bool:
        """Whether it was here before: a look that changes nothing."""
        return self._seen.known(entry)

    def record(self, entry: Entry, now_ns: int) -> Novelty:
        """As `Seen.record`; FULL too where it cannot be written down."""
        found = self._seen.record(entry, now_ns)
        if found is Novelty.NEW and self._journal is not None:
            try:
                if self._journal.due(now_ns):
                    self._journal.turn(self._seen.ahead(now_ns), now_ns)
                self._journal.write(entry)
            except OSError as error:
                self._failing = True
                self._say(error)
                return Novelty.FULL
            self._failing = False
        return found

    def _say(self, error: OSError) -> None:
        if time.monotonic() - self._said > _SAY_S:
            self._said = time.monotonic()
            log.error("requests are refused: what was seen cannot be written down: %s", error)
