"""Second nets for a worker whose host died while the engine hangs.

The first is the connection's end, which the loop sees by itself. A hung engine never returns to the loop, so
a thread of its own waits for the hangup and, some seconds later, ends the process. The parent-death signal is
for hosts that ask for it: it comes when the *thread* that spawned the worker ends, which a host must know.
"""

from __future__ import annotations

import os
import sys
from _thread import start_new_thread  # `threading` alone costs a millisecond of every start

GRACE_S = 5.0
ASKED = "BAKEMESH_WORKER_DIES_WITH_PARENT"
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def watch(fd: int, grace_s: float = GRACE_S) -> None:
    """Ends the process `grace_s` after the peer of this connection is gone."""
    import select

    if fd < 0 or not hasattr(select, "poll"):
        return
    start_new_thread(_wait, (fd, grace_s))


def die_with_parent() -> None:
    """Where the host asked for it, on Linux: SIGKILL when the thread that spawned this process ends."""
    if not sys.platform.startswith("linux") or os.environ.get(ASKED) != "1":
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died in between
        os._exit(0)


def _wait(fd: int, grace_s: float) -> None:
    import select
    import time

    poller = select.poll()
    poller.register(fd, 0)  # a hangup is told unasked
    poller.poll()
    time.sleep(grace_s)
    os.write(2, b"bakemesh worker: the host is gone and the engine does not return: ends\n")
    os._exit(0)
