"""`python -m support.portrait [CODE]`: runs the code, or writes how this process was started."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import __main__

STATUS = ("Name", "Umask", "NoNewPrivs", "Threads", "SigPnd", "SigBlk", "SigCgt", "ShdPnd")
INTERNAL = 0b11 << 31  # signals 32 and 33 are the C library's own: its posix_spawn leaves them ignored


def portrait() -> dict[str, Any]:
    """How this process was started, but for what is its own: ids, instance, mark."""
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    limits = Path("/proc/self/limits").read_text().splitlines()
    spec = __main__.__spec__
    return {
        "argv": [sys.argv, sys.orig_argv, sys.executable, str(sys.flags)],
        "command line": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode(),
        "environ": Path("/proc/self/environ").read_bytes().rstrip(b"\0").decode().split("\0"),
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
        "path": sys.path,
        "main": [__name__, __main__.__file__, __main__.__package__, None if spec is None else spec.name],
        "descriptors": [
            os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(int(fd))
        ],
        "streams": [
            [repr(stream), repr(stream.buffer), stream.line_buffering, stream.write_through]
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "status": {name: status[name].strip() for name in STATUS},
        "ignored": int(status["SigIgn"], 16) & ~INTERNAL,
        "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "wakeup": signal.set_wakeup_fd(-1),
        "leader": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
        "limits": [line for line in limits if "file locks" not in line],
        "score": Path("/proc/self/oom_score_adj").read_text(),
        "nice": os.nice(0),
        "collector": [gc.isenabled(), gc.get_threshold()],
        "thread": [threading.current_thread().name, threading.active_count()],
        "strange modules": [name for name in ("kernel", "limits", "wire", "tree") if name in sys.modules],
    }


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    if len(sys.argv) > 1:
        exec(sys.argv[1])
    else:
        print(json.dumps(portrait()))
