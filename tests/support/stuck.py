"""A file system that never answers: who asks it for a file hangs in the system, and no signal ends that.

with dead_disk(tmp_path / "dead") as disk: ...   # a process that opens disk / "x" is in state D until the end

Needs root and FUSE (`POSSIBLE`).
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEVICE = "/dev/fuse"
POSSIBLE = os.geteuid() == 0 and os.path.exists(DEVICE)
_REQUEST = struct.Struct("=IIQQIIII")  # length, opcode, unique, node, uid, gid, pid, padding
_ANSWER = struct.Struct("=IiQ")  # length, error, unique
_INIT = 26


@contextmanager
def dead_disk(path: Path) -> Iterator[Path]:
    """It is mounted at `path`; whoever hangs in it is let go at the end."""
    path.mkdir()
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    reading = threading.Thread(target=_read, args=(device,), name="dead disk")
    try:
        command = ["mount", "-i", "-t", "fuse", "-o", options, "dead", str(path)]
        subprocess.run(command, pass_fds=(device,), check=True)
        reading.start()
        yield path
    finally:
        subprocess.run(["umount", "-f", "-l", str(path)], check=False)
        if reading.ident is not None:
            reading.join()
        os.close(device)


def _read(device: int) -> None:
    """Takes each request, so that the system waits for its answer, and answers the first one alone."""
    with contextlib.suppress(OSError):  # it is unmounted
        while True:
            request = os.read(device, 1 << 20)
            _, opcode, unique, *_ = _REQUEST.unpack_from(request)
            if opcode == _INIT:
                body = struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 9, 1 << 16, 1, 0, 0, 0)
                os.write(device, _ANSWER.pack(_ANSWER.size + len(body), 0, unique) + body)
