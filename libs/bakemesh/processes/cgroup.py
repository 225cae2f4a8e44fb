"""The optional net: a cgroup v2 of the keeper and all steps below it, where this user may make one.

The keeper moves into it once, at its start, and takes it away at its end; every step is born in it: that
costs a step nothing, and neither a cleared environment nor a lost parent gets a process out of it. Nothing
depends on it; where it cannot be made (a read-only mount, no right to write, an old kernel) everything else
works without. A component gets one of its own, beside it, only where its controllers hold a limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from bakemesh.processes import proc


def folder_name(token: str) -> str:
    """The cgroup's name: the token itself may hold anything, and need not be shown to everyone."""
    return "bakemesh-steps-" + hashlib.sha256(token.encode()).hexdigest()[:16]


def component_folder_name(instance: str) -> str:
    """The name of a component's cgroup."""
    return "bakemesh-component-" + hashlib.sha256(instance.encode()).hexdigest()[:16]


def mount_point() -> tuple[Path, str] | None:
    """Where cgroup v2 is mounted, and which part of the hierarchy that shows."""
    try:
        lines = proc.read("/proc/self/mountinfo").decode(errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 "):
            parts = left.split()
            return Path(parts[4].replace("\\040", " ")), parts[3]
    return None


def own_folder() -> Path | None:
    """The cgroup v2 folder this process is in."""
    mounted = mount_point()
    if mounted is None:
        return None
    point, root = mounted
    with contextlib.suppress(OSError):
        for line in proc.read("/proc/self/cgroup").decode(errors="surrogateescape").splitlines():
            if line.startswith("0::"):
                path = line[3:]
                if root != "/" and (path + "/").startswith(root + "/"):
                    path = path[len(root) :]
                return point / path.lstrip("/")
    return None


def with_controllers(wanted: set[str], folder: Path | None) -> Path | None:
    """Where a cgroup can be made that has one of these controllers: in the own folder, or beside it.

    The own one holds this process, which is allowed at the root only; beside it is ours where that part of
    the hierarchy was delegated (systemd's `Delegate=` with `DelegateSubgroup=`).
    """
    if folder is None or not wanted:
        return None
    for base in (folder, *([folder.parent] if _delegated(folder.parent) else [])):
        try:
            there = wanted & set((base / "cgroup.controllers").read_text().split())
            for controller in there:
                with contextlib.suppress(OSError):
                    (base / "cgroup.subtree_control").write_text(f"+{controller}")
            if there & set((base / "cgroup.subtree_control").read_text().split()):
                return base
        except OSError:
            continue
    return None


def _delegated(folder: Path) -> bool:
    for attribute in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, attribute) == b"1":
                return True
    return False


class StepCgroup:
    """A cgroup for one token's keeper and steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, token: str) -> StepCgroup | None:
        """Makes it below the own cgroup, or finds it there; None where that is not possible."""
        own = own_folder()
        if own is None:
            return None
        folder = own / folder_name(token)
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            return None
        if not (folder / "cgroup.procs").exists():
            return None
        return cls(folder)

    def members(self) -> list[int]:
        """The processes inside, those of inner cgroups included; zombies are not listed."""
        found: list[int] = []
        for folder, _, _ in os.walk(self.folder):
            with contextlib.suppress(OSError):
                found += map(int, proc.read(folder + "/cgroup.procs").split())
        return found

    def holds(self, pid: int) -> bool:
        """Whether a process, a zombie too, is in here."""
        try:
            return f"/{self.folder.name}".encode() in proc.read(f"/proc/{pid}/cgroup")
        except OSError:
            return False

    def kill(self) -> int:
        """KILL to everything inside, at once; returns how many there were."""
        inside = self.members()
        if inside:
            try:
                (self.folder / "cgroup.kill").write_text("1")
            except OSError:  # before Linux 5.14
                for pid in inside:
                    with contextlib.suppress(OSError):
                        os.kill(pid, 9)
        return len(inside)

    def remove(self) -> None:
        """Removes it if nothing is inside any more."""
        for folder, _, _ in os.walk(self.folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def existing(token: str) -> list[StepCgroup]:
    """Every cgroup of this token: a dead predecessor may have lived in another part of the hierarchy."""
    return named(folder_name(token))


def named(name: str) -> list[StepCgroup]:
    """Every cgroup of this name."""
    mounted = mount_point()
    if mounted is None:
        return []
    return [StepCgroup(Path(folder) / name) for folder, inner, _ in os.walk(mounted[0]) if name in inner]
