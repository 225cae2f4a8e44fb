"""What the machine tells of itself, read from the text of /proc, /sys and cgroups: pure, but for `Machine`.

A container's own limits count where they are tighter than the machine's: memory by the tightest `memory.max`
on the way up, CPU by the tightest `cpu.max` (its share is of what it may use). What cannot be read, or reads
as nonsense, is None and left out. Left out: cgroup version 1, swap, what each process uses.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bakemesh.protocol.numerals import whole

PROC, SYS, CGROUPS = Path("/proc"), Path("/sys"), Path("/sys/fs/cgroup")
COLDEST_C, HOTTEST_C = -60.0, 200.0  # beyond these it is no temperature but a broken sensor
LIMITLESS = 1 << 60  # some kernels write a number near 2**63 where there is no limit


@dataclass(frozen=True, slots=True)
class Cpu:
    """Busy and all CPU time up to now, in one unit of whoever counted."""

    busy: float
    total: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    used: int
    total: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the machine; None: it does not tell. `cpu`: busy share since the look before, 0 to 1."""

    cpu: float | None
    load: float | None
    memory: Memory | None
    disk: Memory | None
    temperature: float | None


# -- text → numbers


def cpu_of(stat: str) -> Cpu | None:
    """/proc/stat's first line: ticks of all cores. Guests are counted in user and nice already."""
    for line in stat.splitlines():
        name, _, rest = line.partition(" ")
        if name == "cpu":
            try:
                ticks = [int(each) for each in rest.split()[:8]]
            except ValueError:
                return None
            if len(ticks) < 4:
                return None
            idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0)  # waiting for a disk is not busy
            return Cpu(sum(ticks) - idle, sum(ticks))
    return None


def share(before: Cpu | None, now: Cpu | None) -> float | None:
    """Busy share between two looks, 0 to 1; None where no time has passed, or a counter was reset."""
    if before is None or now is None or now.total <= before.total or now.busy < before.busy:
        return None
    return min(1.0, (now.busy - before.busy) / (now.total - before.total))


def memory_of(meminfo: str) -> Memory | None:
    """/proc/meminfo: total, and what is not available any more."""
    found: dict[str, int] = {}
    for line in meminfo.splitlines():
        name, colon, rest = line.partition(":")
        if colon and name in ("MemTotal", "MemAvailable") and rest.split()[:1]:
            try:
                found[name] = int(rest.split()[0]) * 1024
            except ValueError:
                return None
    if len(found) < 2:
        return None
    return Memory(max(0, found["MemTotal"] - found["MemAvailable"]), found["MemTotal"])


def cgroup_of(cgroup: str) -> str | None:
    """/proc/self/cgroup: the path in the one tree of version 2, None where there is none."""
    return next((line[3:] for line in cgroup.splitlines() if line.startswith("0::/")), None)


def limit_of(text: str | None) -> int | None:
    """memory.max: bytes, None for none."""
    limit = whole((text or "").strip(), digits=19)
    return None if limit is None or limit >= LIMITLESS else limit


def cores_of(text: str | None) -> float | None:
    """cpu.max, `QUOTA PERIOD`: how many cores, None for no limit."""
    quota, _, period = (text or "").strip().partition(" ")
    allowed, every = whole(quota), whole(period)
    return allowed / every if allowed is not None and every else None


def field_of(text: str | None, name: str) -> int | None:
    """A line `NAME NUMBER` of memory.stat or cpu.stat."""
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return whole(value.strip())
    return None


def contained(memory: Memory | None, limit: int | None, current: int | None, cache: int) -> Memory | None:
    """Memory of the machine, or of a container whose limit is tighter. `cache`: bytes it would give back."""
    if limit is None or current is None or (memory is not None and limit >= memory.total):
        return memory
    return Memory(max(0, min(limit, current - cache)), limit)


def hottest(millidegrees: Iterable[str | None]) -> float | None:
    """°C of the hottest sensor that makes sense."""
    found = []
    for text in millidegrees:
        try:
            degrees = int((text or "").strip()) / 1000
        except ValueError:
            continue
        if COLDEST_C < degrees < HOTTEST_C:
            found.append(degrees)
    return max(found, default=None)


# -- where it is read


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


class Machine:
    """The machine around the Builder. `disk`: a folder on the file system that counts.

    `sample` reads some files and waits for no disk but the one asked for: call it off the loop.
    """

    def __init__(self, disk: Path, *, proc: Path = PROC, sys: Path = SYS, cgroups: Path = CGROUPS) -> None:
        self._disk, self._proc = disk, proc
        self._sensors = [
            *sys.glob("class/hwmon/hwmon*/temp*_input"),
            *sys.glob("class/thermal/thermal_zone*/temp"),
        ]
        self._groups = _groups(cgroup_of(_read(proc / "self/cgroup") or ""), cgroups)
        self._before = self._cpu(0.0)

    def sample(self, now: float) -> Sample:
        """A look at it; `now` in seconds, monotonic."""
        before, self._before = self._before, self._cpu(now)
        return Sample(
            cpu=_pairwise(before, self._before),
            load=_load(),
            memory=self._memory(),
            disk=_disk(self._disk),
            temperature=hottest(_read(each) for each in self._sensors) if self._sensors else None,
        )

    def _cpu(self, now: float) -> tuple[str, Cpu | None]:
        """The container's own count where it may use less than the machine has, else the machine's."""
        tightest: tuple[float, Path] | None = None
        for group in self._groups:
            cores = cores_of(_read(group / "cpu.max"))
            if cores is not None and (tightest is None or cores < tightest[0]):
                tightest = (cores, group)
        if tightest is not None and tightest[0] < (os.cpu_count() or 1):
            cores, group = tightest
            used = field_of(_read(group / "cpu.stat"), "usage_usec")
            if used is not None:
                return f"{group} {cores}", Cpu(used / 1e6, now * cores)
        return "machine", cpu_of(_read(self._proc / "stat") or "")

    def _memory(self) -> Memory | None:
        memory = memory_of(_read(self._proc / "meminfo") or "")
        for group in self._groups:
            limit = limit_of(_read(group / "memory.max"))
            if limit is not None:
                current = limit_of(_read(group / "memory.current"))
                cache = field_of(_read(group / "memory.stat"), "inactive_file") or 0
                memory = contained(memory, limit, current, cache)
        return memory


def _pairwise(before: tuple[str, Cpu | None], now: tuple[str, Cpu | None]) -> float | None:
    """The share, where both were counted by the same one."""
    return share(before[1], now[1]) if before[0] == now[0] else None


def _groups(path: str | None, root: Path) -> list[Path]:
    """The cgroup and those above it, as far as they are seen from here; a container sees its own as /."""
    if path is None:
        return []
    group = root / path.lstrip("/")
    chain = [group, *group.parents]
    found = [each for each in chain if each == root or root in each.parents]
    return [each for each in found if (each / "cgroup.controllers").exists()]


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _disk(folder: Path) -> Memory | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return Memory((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_blocks * found.f_frsize)
