"""Errors of starting and keeping processes: one class a cause, with a message that a person can act on."""

from __future__ import annotations

import errno as numbers
import os
from enum import StrEnum

from bakemesh.processes.spec import ProcessSpec

SINGLE_ARGUMENT = (
    32 * 4096
)  # bytes of one argument or variable, its NUL included: the kernel's MAX_ARG_STRLEN


class Refusal(StrEnum):
    """Why a process was not started."""

    PROGRAM_MISSING = "program_missing"
    INTERPRETER_MISSING = "interpreter_missing"
    NOT_EXECUTABLE = "not_executable"
    BAD_FORMAT = "bad_format"
    BAD_CWD = "bad_cwd"
    TOO_LARGE = "too_large"
    BAD_ARGUMENT = "bad_argument"
    NO_RESOURCES = "no_resources"
    BAD_FOLDER = "bad_folder"
    STILL_RUNNING = "still_running"
    KEEPER_LOST = "keeper_lost"
    OTHER = "other"


class ProcessError(Exception):
    """Base of every error of this package."""


class SpawnRefused(ProcessError):
    """Raised when a process was not started: `what` is the cause, `errno` the system's number (0: none)."""

    def __init__(self, errno: int, what: Refusal, message: str) -> None:
        super().__init__(message)
        self.errno = errno
        self.what = what
        self.message = message


class KeeperLost(SpawnRefused):
    """Raised when the keeper or the minder died before it said that the process runs: it may have run for a
    moment.

    Nothing of it is alive when this is raised.
    """

    def __init__(self, message: str) -> None:
        super().__init__(0, Refusal.KEEPER_LOST, message)


class KeeperFailed(ProcessError):
    """Raised when no keeper can be started."""


def refused(spec: ProcessSpec, stage: str, errno: int) -> SpawnRefused:
    """The error for what the minder reported: `stage` is where it failed, `errno` what the system said."""
    program = spec.argv[0]
    said = os.strerror(errno)
    if stage == "cwd":
        return SpawnRefused(
            errno, Refusal.BAD_CWD, f"cannot start {program!r} in {os.fspath(spec.cwd or '.')!r}: {said}"
        )
    if stage == "folder" and errno == numbers.EWOULDBLOCK:
        return SpawnRefused(
            errno,
            Refusal.STILL_RUNNING,
            f"cannot start {program!r}: a shim that runs has the component's folder",
        )
    if stage == "folder":
        return SpawnRefused(
            errno,
            Refusal.BAD_FOLDER,
            f"cannot start {program!r}: the component's folder does not serve: {said}",
        )
    if stage == "cgroup":
        return SpawnRefused(
            errno,
            Refusal.NO_RESOURCES,
            f"cannot start {program!r}: its shim cannot leave the cgroup of steps, and would die with them",
        )
    if stage in ("fork", "stdio"):
        return SpawnRefused(
            errno,
            Refusal.NO_RESOURCES,
            f"cannot start {program!r}: no further process or file is to be had here ({said})",
        )
    if stage == "interpreter":
        return SpawnRefused(
            errno,
            Refusal.INTERPRETER_MISSING,
            f"cannot start {program!r}: the file exists, but the interpreter it names does not "
            "(first line '#!…' of a script, or the loader of a binary)",
        )
    if errno in (numbers.ENOENT, numbers.ENOTDIR):
        if "/" in program:
            where = "there is no such file"
        else:
            where = f"not found in PATH ({spec.env.get('PATH', os.defpath)})"
        return SpawnRefused(errno, Refusal.PROGRAM_MISSING, f"cannot start {program!r}: {where}")
    if errno in (numbers.EACCES, numbers.EPERM, numbers.EISDIR):
        return SpawnRefused(
            errno,
            Refusal.NOT_EXECUTABLE,
            f"cannot start {program!r}: not an executable file for this user ({said})",
        )
    if errno == numbers.ENOEXEC:
        return SpawnRefused(
            errno,
            Refusal.BAD_FORMAT,
            f"cannot start {program!r}: neither a binary for this machine nor a script that begins with '#!'",
        )
    if errno == numbers.E2BIG:
        return SpawnRefused(errno, Refusal.TOO_LARGE, f"cannot start {program!r}: {_too_large(spec)}")
    if errno in (numbers.EAGAIN, numbers.ENOMEM, numbers.EMFILE, numbers.ENFILE):
        return SpawnRefused(errno, Refusal.NO_RESOURCES, f"cannot start {program!r}: {said}")
    return SpawnRefused(errno, Refusal.OTHER, f"cannot start {program!r}: {said}")


def _too_large(spec: ProcessSpec) -> str:
    sizes = [(len(os.fsencode(a)) + 1, f"argument {n}") for n, a in enumerate(spec.argv)]
    sizes += [(len(os.fsencode(k)) + len(os.fsencode(v)) + 2, f"variable {k}") for k, v in spec.env.items()]
    largest, name = max(sizes)
    if largest > SINGLE_ARGUMENT:
        return f"{name} has {largest - 1:,} bytes, at most {SINGLE_ARGUMENT - 1:,} are possible"
    total = sum(size for size, _ in sizes)
    return f"arguments and environment have {total:,} bytes, more than the system takes (see `ulimit -s`)"
