"""How much memory this process holds."""

from __future__ import annotations

import os
import sys


def rss_mb() -> float:
    """MiB resident now; where the system does not tell that cheaply (not Linux), the most there ever was."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return _peak()
    return round(pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20), 1)


def _peak() -> float:
    if sys.platform == "win32":
        return 0.0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(most / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)
