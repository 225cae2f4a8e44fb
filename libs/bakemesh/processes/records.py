"""What a shim wrote in its component's folder, read: who runs, how it ended. `keeper/folder.py` writes it.

Guarantees: what is broken, cut off or of another instance is as if it were not there.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from bakemesh.processes import marks, proc
from bakemesh.processes.spec import ShimExit

IDENTITY, EXIT, SOCKET = "shim.id", "shim.exit", "shim.sock"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a shim started, and which shim; `pid` 0: it had not begun."""

    instance: str
    boot: str
    shim: int
    shim_start: int
    pid: int
    start_time: int
    marked: bool


def boot_id() -> str:
    """The kernel's name of this boot: a pid and its start time mean nothing in another."""
    return proc.read("/proc/sys/kernel/random/boot_id").decode().strip()


def read_identity(folder: Path, instance: str) -> Identity | None:
    """Who runs this instance, None where that is not known."""
    values = _read(folder / IDENTITY, instance)
    try:
        return Identity(
            instance,
            values["boot"],
            int(values["shim"]),
            int(values["shim_start"]),
            int(values["pid"]),
            int(values["start"]),
            int(values["mark"]) != 0,
        )
    except (KeyError, ValueError):
        return None


def read_exit(folder: Path, instance: str) -> ShimExit | None:
    """How this instance ended, None where that is not written."""
    return _exit(_read(folder / EXIT, instance))


def parse_exit(text: bytes, instance: str) -> ShimExit | None:
    """The same from the text that a shim told."""
    return _exit(_parse(text, instance))


def pin(pid: int, start_time: int, mark: int | None = None) -> int | None:
    """A pidfd of the process that had this pid and start time, if it is a shim that lives, of this mark."""
    try:
        pinned = os.pidfd_open(pid)
    except (OSError, OverflowError, ValueError):
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = proc.fields(pid)
        same = int(fields[19]) == start_time and proc.name(pid) == marks.SHIM_NAME
        same = same and mark in (None, marks.lock_limit(pid))
        if same and fields[0] not in (b"Z", b"X"):
            return pinned
    os.close(pinned)
    return None


def _exit(values: dict[str, str]) -> ShimExit | None:
    try:
        code = os.waitstatus_to_exitcode(int(values["status"]))
        return ShimExit(
            code if code >= 0 else None,
            -code if code < 0 else None,
            lost=False,
            at=float(values["at"]),
            reason=values["reason"],
            killed=int(values["killed"]),
            max_rss_kib=int(values["rss"]),
            cpu_s=int(values["cpu"]) / 1e6,
        )
    except (KeyError, ValueError):
        return None


def _read(path: Path, instance: str) -> dict[str, str]:
    try:
        return _parse(path.read_bytes(), instance)
    except OSError:
        return {}


def _parse(text: bytes, instance: str) -> dict[str, str]:
    values = {}
    for line in text.decode(errors="replace").splitlines():
        name, _, value = line.partition(" ")
        values[name] = value
    return values if values.get("instance") == instance else {}
