"""The pool's numbers. The defaults are those of the protocol's page; every wait has one."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bakemesh.protocol.worker.frames import MAX_FRAME
from bakemesh.workerpool import budget, deadlines

OUR_WORKER = (sys.executable, "-m", "bakemesh.worker")
_SOCKET_BYTES = 104  # of a socket's path: the smallest limit of the platforms
_SOCKET_NAME = len("/wk-0123456789abcdef.sock")  # the shortest that the pool falls back to


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`runtime_dir`: 0700, of this pool alone. `command`: gets `--socket PATH --nonce HEX`. `env`: beside
    this process's own. `quarantine_file`: None: not kept over a restart. `budget`: None: nothing is ever
    quarantined. `redispatch`: off where somebody upstream repeats; a batch of several callers is run apart
    all the same. Seconds."""

    runtime_dir: Path
    workers: int = 1
    command: tuple[str, ...] = OUR_WORKER
    env: Mapping[str, str] = field(default_factory=dict)
    quarantine_file: Path | None = None
    max_frame: int = MAX_FRAME
    deadlines: deadlines.Rules = field(default_factory=deadlines.Rules)
    budget: budget.Rules | None = field(default_factory=budget.Rules)
    redispatch: bool = True
    poison_s: float = 900.0
    within_s: float = 900.0  # a caller that names no deadline
    handshake_s: float = 5.0
    start_s: float = 15.0  # for the first worker, before `start` gives up
    ping_every_s: float = 5.0
    ping_within_s: float = 2.0
    ping_misses: int = 3
    cancel_s: float = 2.0
    exit_s: float = 1.0  # for a process to end whose connection did
    output_bytes: int = 64 << 10  # kept of each worker
    crash_output_bytes: int = 8 << 10  # of that, told with a crash

    def __post_init__(self) -> None:
        """Raises ValueError for settings that cannot be."""
        if self.workers < 1:
            raise ValueError(f"workers is {self.workers}; a pool needs 1 or more")
        if not self.command:
            raise ValueError("command is empty; it names the worker's program")


def runtime_dir(folder: Path) -> Path:
    """Where the workers' sockets are: in the folder, or, where their paths would be too long for a socket, in
    one of this user's below the system's temporary folder that is the same at each start."""
    inside = folder.absolute() / "run"
    if len(os.fsencode(inside)) + _SOCKET_NAME < _SOCKET_BYTES:
        return inside
    known = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"bakemesh-{os.getuid()}-{known}"
