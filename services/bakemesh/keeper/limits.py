"""What a component may use, as far as the system holds it.

With a cgroup v2 whose controllers may be used: `memory.max` and `cpu.max`, held by the kernel. Without: the
memory is looked at every second and the tree is killed when it has more; what allocates faster than that is
for the kernel's own killer. CPU time is held by a cgroup only, and what is not held is not claimed.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bakemesh.keeper import tree, wire
else:
    import tree

MEMORY, SAMPLED, CPU = b"memory", b"memory-sampled", b"cpu-share"
PERIOD_US = 100_000
PAGE = os.sysconf("SC_PAGE_SIZE")
LOOK_S = 1.0
REASON = b"memory limit"


class Limits:
    """The limits of one component."""

    def __init__(self, order: "wire.Order") -> None:
        self.memory = order.memory
        self.cgroup = order.cgroup
        self.held: list[bytes] = []
        self.due = 0.0
        if self.cgroup:
            self.make(order)
        self.sample()

    def sample(self) -> None:
        """Memory that no cgroup holds is looked at."""
        if self.memory and MEMORY not in self.held:
            self.held.append(SAMPLED)

    def make(self, order: "wire.Order") -> None:
        """Makes the cgroup; without where it cannot be made."""
        try:
            os.makedirs(self.cgroup, exist_ok=True)
        except OSError:
            self.cgroup = b""
            return
        if order.memory and self.put(b"memory.max", order.memory):
            self.held.append(MEMORY)
            self.put(b"memory.oom.group", 1)
        if order.cpu and self.put(b"cpu.max", b"%d %d" % (order.cpu * PERIOD_US // 1000, PERIOD_US)):
            self.held.append(CPU)

    def put(self, name: bytes, value: bytes | int) -> bool:
        """Sets one of the cgroup's values; whether it took it."""
        return write(self.cgroup + b"/" + name, value)

    def enter(self) -> None:
        """Goes into the cgroup for the moment of the start, so that the component is born in it."""
        if self.cgroup and not enter(self.cgroup):
            self.remove()
            self.cgroup = b""
            self.held.clear()
            self.sample()

    def over(self, now: float, top: int) -> bool:
        """Whether the tree has more memory than it may; looks once a second."""
        if SAMPLED not in self.held or now < self.due:
            return False
        self.due = now + LOOK_S
        found: list[int] = []
        tree.fell(top, tree.look(), lambda pid, _: found.append(pid))
        # A page that several map counts for each of them in the first sum, which is ten times cheaper.
        return sum(map(resident, found)) > self.memory and sum(map(proportional, found)) > self.memory

    def killed(self) -> bool:
        """Whether the kernel killed for the cgroup's memory limit."""
        if MEMORY not in self.held:
            return False
        try:
            events = tree.read(os.fsdecode(self.cgroup) + "/memory.events").split()
            return int(events[events.index(b"oom_kill") + 1]) > 0
        except (OSError, ValueError, IndexError):
            return False

    def remove(self) -> None:
        """Takes the cgroup away, when nothing lives in it."""
        if self.cgroup:
            try:  # noqa: SIM105 - contextlib is an import more
                os.rmdir(self.cgroup)
            except OSError:
                pass


def resident(pid: int) -> int:
    """The bytes a process has in memory."""
    try:
        return int(tree.read(f"/proc/{pid}/statm").split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def proportional(pid: int) -> int:
    """The same, of pages that several map its share only; where that is not told, all."""
    try:
        words = tree.read(f"/proc/{pid}/smaps_rollup").split()
        return int(words[words.index(b"Pss:") + 1]) * 1024
    except (OSError, ValueError, IndexError):
        return resident(pid)


def enter(cgroup: bytes) -> bool:
    """Moves this process, and what it will fork."""
    return write(cgroup + b"/cgroup.procs", 0)


def write(path: bytes, value: bytes | int) -> bool:
    """Writes one of the kernel's files; whether it took the value."""
    try:
        fd = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(fd, value if isinstance(value, bytes) else b"%d" % value)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
