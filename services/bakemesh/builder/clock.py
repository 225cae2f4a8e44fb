"""The two clocks of the Builder, as one argument: `wall` for what others read, `monotonic` for every
duration.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`wall`: µs since the epoch, may jump; `monotonic`: seconds, never goes back."""

    wall: Callable[[], int] = lambda: time.time_ns() // 1000
    monotonic: Callable[[], float] = time.monotonic
