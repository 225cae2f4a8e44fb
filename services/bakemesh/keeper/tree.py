"""Who is below whom, and how to end all of it.

Guarantees: parents are struck before their children are read, and a process with a fatal signal pending
finishes no further fork: what is missed is missed for one round only. A process that is no child of the
caller is signalled through a pidfd after its parent was compared, so that a pid given away anew is never hit.
`reap` answering False is exact: nothing lives below a subreaper without children. Leaves out: when to do it
(`minder.py`, `keeper.py`).
"""

import os
from _signal import pidfd_send_signal  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from resource import struct_rusage

KILL, TERM, CONT = 9, 15, 18
ROUND_S = 0.002
SLOW_ROUND_S = 0.2
WHO_S = 5.0  # after so long whoever still lives is named, and rounds get slow
MOST_NAMED = 100
MOST_ROUNDS = 20


def read(path: str) -> bytes:
    """A file of /proc, whole; raises OSError where its process is gone."""
    fd = os.open(path, os.O_RDONLY)
    try:
        data = b""
        while part := os.read(fd, 65536):
            data += part
        return data
    finally:
        os.close(fd)


def stat(pid: int) -> list[bytes]:
    """`/proc/<pid>/stat` from the state on, cut at the last bracket: a name may hold blanks and brackets."""
    return read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()


def parent(pid: int) -> int:
    """The parent of `pid`, 0 where it is gone."""
    try:
        return int(stat(pid)[1])
    except OSError:
        return 0


def start_time(pid: int) -> int:
    """When `pid` was started, in clock ticks since boot; 0 where it is gone."""
    try:
        return int(stat(pid)[19])
    except OSError:
        return 0


def listed(pid: int) -> list[int]:
    """The children of `pid` by the kernel's own lists: one for each thread, of those which it forked."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        pass
    return found


def scanned() -> "Callable[[int], list[int]]":
    """The same by asking every process for its parent, once: for kernels without CONFIG_PROC_CHILDREN."""
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            below.setdefault(parent(int(entry)), []).append(int(entry))
    return lambda pid: below.get(pid, [])


LISTS = os.path.exists("/proc/thread-self/children")


def look() -> "Callable[[int], list[int]]":
    """How to find children in one round."""
    return listed if LISTS else scanned()


def fell(
    top: int,
    children_of: "Callable[[int], list[int]]",
    strike: "Callable[[int, int], None]",
    spared: "frozenset[int] | set[int]" = frozenset(),
) -> int:
    """Calls `strike(pid, parent)` for everything below `top`, parents first, but `spared` children of `top`.

    Returns how many there were.
    """
    todo = [(child, top) for child in children_of(top) if child not in spared]
    seen: set[int] = {top}
    while todo:
        pid, above = todo.pop()
        if pid in seen:
            continue
        seen.add(pid)
        strike(pid, above)
        todo += [(child, pid) for child in children_of(pid)]
    return len(seen) - 1


def signal(pid: int, above: int, *numbers: int) -> None:
    """Signals a process found below `above`. One that is gone, or has other rights, is passed over."""
    me = os.getpid()
    try:
        if above == me:  # an own child that is not reaped keeps its pid
            for number in numbers:
                os.kill(pid, number)
            return
        pinned = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if parent(pid) in (above, me):  # `me`: its parent died meanwhile, and it came up to this subreaper
            for number in numbers:
                pidfd_send_signal(pinned, number)
    except OSError:
        pass
    finally:
        os.close(pinned)


def kill(pid: int, above: int) -> None:
    """A strike: KILL."""
    signal(pid, above, KILL)


def terminate(pid: int, above: int) -> None:
    """A strike: TERM, and CONT, for a stopped process would sleep through it."""
    signal(pid, above, TERM, CONT)


def terminate_all(
    top: int,
    children_of: "Callable[[], Callable[[int], list[int]]]" = look,
    strike: "Callable[[int, int], None]" = terminate,
) -> None:
    """TERM and CONT to everything below `top`, once each.

    The whole tree is read before it is struck: a parent dies of TERM at once, and its children are then
    nobody's to find below it. Read again until nobody new is found, for those born meanwhile; within bounds,
    for a tree can fork for ever and what is missed here is killed later.
    """
    told: set[int] = set()
    for _ in range(MOST_ROUNDS):
        found: list[tuple[int, int]] = []
        fell(top, children_of(), lambda pid, above: found.append((pid, above)))  # noqa: B023 - called at once
        new = [(pid, above) for pid, above in found if pid not in told]
        if not new:
            return
        for pid, above in new:
            told.add(pid)
            strike(pid, above)


def reap(ended: "Callable[[int, int, struct_rusage], None]") -> bool:
    """Takes every child that ended; False once there is no child at all."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        ended(pid, status, usage)


def killed(status: int) -> bool:
    """Whether a wait status says: ended by KILL."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == KILL


def survivors(top: int, spared: "frozenset[int] | set[int]" = frozenset()) -> list[bytes]:
    """Who lives below `top`, four fields each: pid, name, state, wchan. Zombies are dead."""
    found: list[int] = []
    fell(top, look(), lambda pid, _: found.append(pid), spared)
    fields: list[bytes] = []
    for pid in found[:MOST_NAMED]:
        try:
            state = stat(pid)[0]
            if state in (b"Z", b"X"):
                continue
            comm = read(f"/proc/{pid}/comm").rstrip(b"\n")
        except OSError:
            continue
        try:
            wchan = read(f"/proc/{pid}/wchan").replace(b"\0", b"")
        except OSError:
            wchan = b""
        fields += [b"%d" % pid, comm, state, b"" if wchan == b"0" else wchan]
    return fields
