"""Stops a regular expression that runs away, so that one recipe cannot stop the Builder's loop.

`re` looks for signals while it searches; a timer that counts only this process's own CPU time sends one.
Guarantees: `limited` ends a search after about `seconds` of CPU time with RunsAway, and a late signal hits
nobody. Works in the main thread, where Python runs signal handlers and the Builder runs its loop; elsewhere
the search is not limited.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class RunsAway(Exception):
    """Raised when a search took more CPU time than it may."""


_armed = False


def _ring(_number: int, _frame: FrameType | None) -> None:
    if _armed:
        raise RunsAway


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises RunsAway inside the block after `seconds` of CPU time. Not nestable."""
    global _armed
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _ring)
    _armed = True
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        yield
    finally:
        _armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        # A signal that came in between must still find a handler that ignores it.
        if before not in (signal.SIG_DFL, None):
            signal.signal(signal.SIGVTALRM, before)
