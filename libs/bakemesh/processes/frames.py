"""Frames to and from the keeper, its minders and shims, as pure functions; the keeper's `wire.py` is the
other end.

A frame is one SEQPACKET message: fields joined by NUL bytes, the first one its kind. No field can hold a NUL,
for the system itself allows none in an argument, a variable or a path. An empty message is the end of the
connection.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from bakemesh.processes.spec import ProcessSpec, ShimSpec, Survivor

LARGEST_MESSAGE = (
    64 * 1024
)  # beyond, a start frame travels in a memfd; the system's own limit is about 208 KiB
STDIO = "ioe"
ORDER_FIELDS = 9


class FrameBroken(ValueError):
    """Raised when a frame from the keeper or a minder is not one of the known ones."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The keeper takes requests."""

    version: int


@dataclass(frozen=True, slots=True)
class Started:
    """The main process runs."""

    pid: int
    start_time: int
    minder: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The main process was not started."""

    stage: str
    errno: int


@dataclass(frozen=True, slots=True)
class Exited:
    """The main process ended with this wait status. `cut`: it was killed because the keeper died."""

    status: int
    max_rss_kib: int
    cpu_us: int
    cut: bool


@dataclass(frozen=True, slots=True)
class Nothing:
    """No process of the step is alive; the minder ends."""

    killed: int
    max_rss_kib: int
    cpu_us: int


@dataclass(frozen=True, slots=True)
class Alive:
    """These still live, seconds after SIGKILL; the minder goes on."""

    killed: int
    survivors: tuple[Survivor, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """The minder of request `ident` died, and the keeper killed what it minded, up to `survivors`."""

    ident: int
    killed: int
    survivors: tuple[Survivor, ...]


@dataclass(frozen=True, slots=True)
class Running:
    """A component runs below this shim; `held` are the limits that the system holds here."""

    pid: int
    start_time: int
    shim: int
    shim_start: int
    began: float
    instance: str
    held: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Over:
    """No process of the component is alive; `text` is what the exit file says."""

    text: bytes


Frame = Ready | Started | Refused | Exited | Nothing | Alive | Gone | Running | Over


def start(ident: int, spec: ProcessSpec, stdio: str) -> bytes:
    """A request to start `spec`; `stdio` has the letters of the descriptors that come with it (`ioe`).

    Raises ValueError where a NUL byte is in an argument, a variable or the folder, or a name holds `=`.
    """
    cwd = "" if spec.cwd is None else os.fspath(spec.cwd)
    for name in spec.env:
        if not name or "=" in name:
            raise ValueError(f"{name!r} cannot be the name of an environment variable")
    fields = [f"start\0{ident}\0{stdio}\0{len(spec.argv)}", cwd, *spec.argv]
    fields += [f"{name}={value}" for name, value in spec.env.items()]
    for field in fields[1:]:
        if "\0" in field:
            raise ValueError(f"{field[:80]!r} holds a NUL character, which no process can be given")
    return os.fsencode("\0".join(fields))


def shim(ident: int, spec: ShimSpec, process: ProcessSpec, mark: int, leave: str, cgroup: str) -> bytes:
    """A request to start `process` below a shim; `leave` and `cgroup` are cgroups, empty: none.

    Raises ValueError where a NUL byte is in an argument, a variable or a folder.
    """
    cpu = round((spec.cpu_share or 0) * 1000)
    order = (
        f"{cgroup}\0{cpu}\0{os.fspath(spec.folder)}\0{spec.instance}\0{leave}"
        f"\0{spec.log_bytes}\0{spec.log_files}\0{mark}\0{spec.memory_max_bytes or 0}\0"
    )
    if order.count("\0") != ORDER_FIELDS:
        raise ValueError(f"{os.fspath(spec.folder)!r} holds a NUL character, which no path can have")
    return os.fsencode(f"shim\0{ident}\0\0{order}") + start(ident, process, "")


def large(ident: int, stdio: str, kind: str) -> bytes:
    """Stands for a frame of this kind that travels in the memfd at the end of the descriptors."""
    return f"large\0{ident}\0{stdio}\0{kind}".encode()


def drop(ident: int) -> bytes:
    """Asks the keeper to kill a minder that does not listen, and then what it minded."""
    return f"drop\0{ident}".encode()


def kill(grace_s: float) -> bytes:
    """Asks a minder to end its step: TERM and CONT, the grace, KILL until none is left."""
    return f"kill\0{max(0, round(grace_s * 1000))}".encode()


def sweep() -> bytes:
    """Asks a minder to kill what its ended main process left; a grace that runs is not cut short."""
    return b"sweep"


def status() -> bytes:
    """Asks a shim who runs."""
    return b"status"


def parse(data: bytes) -> Frame:
    """A frame from the keeper or a minder. Raises FrameBroken."""
    kind, *fields = data.split(b"\0")
    try:
        match kind:
            case b"ready":
                return Ready(int(fields[0]))
            case b"started":
                return Started(*(int(f) for f in fields))
            case b"refused":
                return Refused(fields[0].decode(), int(fields[1]))
            case b"exited":
                status, rss, cpu, cut = (int(f) for f in fields)
                return Exited(status, rss, cpu, bool(cut))
            case b"none":
                return Nothing(*(int(f) for f in fields))
            case b"alive":
                return Alive(int(fields[0]), _survivors(fields[1:]))
            case b"gone":
                return Gone(int(fields[0]), int(fields[1]), _survivors(fields[2:]))
            case b"running":
                *numbers, instance, held = fields
                pid, start_time, shim_pid, shim_start, began = (int(f) for f in numbers)
                words = tuple(held.decode().split())
                return Running(pid, start_time, shim_pid, shim_start, began / 1e6, instance.decode(), words)
            case b"over":
                return Over(fields[0])
    except (ValueError, TypeError, IndexError) as wrong:
        raise FrameBroken(f"a broken frame of the keeper: {data[:80]!r}") from wrong
    raise FrameBroken(f"an unknown frame of the keeper: {data[:80]!r}")


def _survivors(fields: list[bytes]) -> tuple[Survivor, ...]:
    if len(fields) % 4:
        raise ValueError("a survivor has four fields")
    quads = zip(*[iter(fields)] * 4, strict=True)
    return tuple(
        Survivor(int(pid), comm.decode(errors="replace"), state.decode(), wchan.decode(errors="replace"))
        for pid, comm, state, wchan in quads
    )
