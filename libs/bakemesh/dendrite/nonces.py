"""Nonces of one dendrite: each larger than the one before, also when the clock is set back.

An axon of the real SDK wants them so for each hotkey and uuid; in `btauth/1`, which has no uuid, two requests
with one nonce would be one.
"""

from __future__ import annotations

from collections.abc import Callable


class Nonces:
    """`now_ns` is the time since the epoch."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._last = 0

    def next(self) -> int:
        """Nanoseconds."""
        self._last = max(self._now_ns(), self._last + 1)
        return self._last
