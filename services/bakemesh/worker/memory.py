"""How much memory this process holds."""

from __future__ import annotations

import os
import sys
from functools import cache

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def rss_mb() -> float:
    """MiB resident now; where the system does not tell that cheaply (not Linux), the most there ever was."""
    statm = _statm()
    if statm is None:
        return _peak()
    return round(int(os.pread(statm, 200, 0).split(None, 2)[1]) * _PAGE / (1 << 20), 1)


@cache
def _statm() -> int | None:
    """Opened once: opening it is most of what a PING costs."""
    try:
        return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _peak() -> float:
    if sys.platform == "win32":
        return 0.0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(most / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)
