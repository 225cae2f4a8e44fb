"""Whom random kills hit, and when: the order out of a seed, and a node's processes as `/proc` shows them.

A node is known by its state folder: its Builder and Startup Supervisor have it on their command line, a
component's working folder is in it. Left out: starting any of it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.processes import children, gone


def order(
    seed: int, targets: Sequence[str], shortest_s: float, longest_s: float
) -> Iterator[tuple[float, str]]:
    """Without end: how long to wait, then whom to kill. Each target once in turn, then at random."""
    draw = random.Random(seed)
    first = list(targets)
    draw.shuffle(first)
    for target in first:
        yield draw.uniform(shortest_s, longest_s), target
    while True:
        yield draw.uniform(shortest_s, longest_s), draw.choice(targets)


@dataclass(frozen=True)
class LivingComponent:
    """A component's main process, and its shim's pid."""

    name: str
    pid: int
    shim: int


class NodeProcesses:
    """What lives of a node."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def service(self, module: str) -> int | None:
        """The pid of its `python -m <module>`."""
        wanted, state = b"\0-m\0" + module.encode() + b"\0", os.fsencode(self.state)
        for pid in _pids():
            command = _read(pid, "cmdline")
            here = any(word.endswith(state) for word in command.split(b"\0"))
            if wanted in command and here and not gone(pid):
                return pid
        return None

    def keeper(self) -> int | None:
        """The pid of its Builder's keeper."""
        builder = self.service("bakemesh.builder")
        for pid in children(builder) if builder is not None else ():
            if _read(pid, "comm").startswith(b"bakemesh-keeper") and not gone(pid):
                return pid
        return None

    def components(self) -> list[LivingComponent]:
        """The main processes of all its components."""
        folder, found = os.fsencode(self.state / "components") + b"/", []
        for pid in _pids():
            if gone(pid):
                continue
            with contextlib.suppress(OSError):
                if not os.fsencode(os.readlink(f"/proc/{pid}/cwd")).startswith(folder):
                    continue
                parent = int(_read(pid, "stat").rpartition(b") ")[2].split()[1])
                if _read(parent, "comm").strip() != b"bakemesh-shim":
                    continue
                for entry in _read(pid, "environ").split(b"\0"):
                    name, _, value = entry.partition(b"=")
                    if name == b"BAKEMESH_COMPONENT":
                        found.append(LivingComponent(value.decode(), pid, parent))
        return found


def with_traces_of(folder: Path, spared: Collection[int] = ()) -> list[str]:
    """Living processes whose command line, environment or working folder names the folder."""
    wanted, found = os.fsencode(folder), []
    for pid in _pids():
        if pid in spared or pid == os.getpid() or gone(pid):
            continue
        cwd = b""
        with contextlib.suppress(OSError):
            cwd = os.fsencode(os.readlink(f"/proc/{pid}/cwd"))
        command = _read(pid, "cmdline")
        if any(wanted in text for text in (command, _read(pid, "environ"), cwd)):
            words = command.decode(errors="replace").split("\0")
            found.append(f"{pid} {_read(pid, 'comm').decode().strip()}: {' '.join(words)[:200]}")
    return found


def kill9(pid: int | None) -> bool:
    """Whether there was one to kill."""
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _read(pid: int, file: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""
