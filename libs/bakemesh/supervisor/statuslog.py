"""What is known of one bake's Status: pure, filled from live messages and the stream alike, in any order.

Guarantees: each serial is kept once; `entry(serial)` gives serials in order without a gap; memory is
bounded by `window` and `ahead`, not by the bake (a reader that fell behind the window replays from the
stream). Left out: where messages come from and when to ask the stream (see `status`).
"""

from __future__ import annotations

from collections import deque

from bakemesh.protocol.builder.messages import TERMINAL_TYPES, BakeOutcome, BakeStatus

WINDOW = 1024
AHEAD = 1024


class StatusLog:
    """Status of one bake, by serial. `base`..`top` are kept in order; what came early waits."""

    def __init__(self, window: int = WINDOW, ahead: int = AHEAD) -> None:
        self._kept: deque[BakeStatus] = deque()
        self._early: dict[int, BakeStatus] = {}
        self._window, self._ahead = window, ahead
        self.base = 1  # serial of the oldest kept one
        self.latest: BakeStatus | None = None  # the highest serial seen: what a progress display shows
        self.terminal: BakeOutcome | None = None

    @property
    def top(self) -> int:
        """The highest serial up to which nothing is missing."""
        return self.base + len(self._kept) - 1

    @property
    def gap(self) -> bool:
        """Whether a serial above `top` was seen, so that one below it is missing."""
        return self.latest is not None and self.latest.serial > self.top

    @property
    def ended(self) -> bool:
        """Whether everything is here, the terminal included."""
        return self.terminal is not None and self.top >= self.terminal.serial

    def offer(self, status: BakeStatus) -> bool:
        """Takes a message from anywhere; True if it was new. A repeated serial is counted once."""
        serial = status.serial
        if serial <= self.top or serial in self._early:
            return False
        if self.terminal is not None and serial > self.terminal.serial:
            return False  # nothing follows the terminal; a message that claims to is not of this bake's life
        if self.latest is None or serial > self.latest.serial:
            self.latest = status
        if isinstance(status, BakeOutcome) and is_terminal(status):
            self.terminal = status
        if serial != self.top + 1:
            # Beyond `ahead` it is not kept: the gap is still seen by `latest`, and the stream has the rest.
            if len(self._early) < self._ahead:
                self._early[serial] = status
            return True
        self._append(status)
        while (following := self._early.pop(self.top + 1, None)) is not None:
            self._append(following)
        return True

    def entry(self, serial: int) -> BakeStatus | None:
        """The message with this serial; None if it is not here (yet, or no longer: see `base`)."""
        index = serial - self.base
        return self._kept[index] if 0 <= index < len(self._kept) else None

    def skip_to(self, serial: int) -> None:
        """Forgets that serials below `serial` exist: the stream no longer has them."""
        if serial <= self.top + 1:
            return
        self._kept.clear()
        self.base = serial
        self._early = {early: status for early, status in self._early.items() if early >= serial}
        while (following := self._early.pop(self.top + 1, None)) is not None:
            self._append(following)

    def _append(self, status: BakeStatus) -> None:
        self._kept.append(status)
        if len(self._kept) > self._window:
            self._kept.popleft()
            self.base += 1


def is_terminal(status: BakeStatus) -> bool:
    """Whether this is the last message of its bake: `final` 1 on one of the three terminal types."""
    return status.final and status.type in TERMINAL_TYPES
