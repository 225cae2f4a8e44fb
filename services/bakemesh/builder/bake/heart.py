"""A bake's heartbeat: a fixed timer, whatever its step is doing and whatever else is said.

It is armed anew only where the interval changes (a step may have its own while it runs), and then from the
last beat, so that no change puts a beat off. A beat is left out while what was said before has not reached
the bus, or the store of Status refuses: it would tell nobody anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Heart:
    """Calls `beat` every `interval` seconds. `clock`: monotonic seconds; `silent`: leave this one out."""

    def __init__(
        self, clock: Callable[[], float], beat: Callable[[], None], silent: Callable[[], bool]
    ) -> None:
        self._clock, self._beat, self._silent = clock, beat, silent
        self._interval = 0.0
        self._last = clock()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, interval: float) -> None:
        """Seconds between two beats; 0 stops."""
        if interval != self._interval:
            self._interval = interval
            self._arm()

    def stop(self) -> None:
        """Beats no more, until an interval is set."""
        self._interval = 0.0
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._interval > 0:
            due = self._last + self._interval - self._clock()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due), self._ring)

    def _ring(self) -> None:
        self._last = self._clock()
        self._arm()
        if not self._silent():
            self._beat()
