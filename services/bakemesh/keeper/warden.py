"""A subreaper's watch over one tree of processes: what minders and shims share.

Guarantees: TERM and CONT go once to the whole tree, KILL begins at the time that was asked for first and is
repeated until no process lives; the CPU time summed here is that of every process that ended. Its state is
three facts: whether the main process ended, when KILL is to begin (None: nobody asked), since when it is
being done. Leaves out: who may ask, and whom it tells (`minder.py`, `shim.py`).
"""

import os
import select
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resource import struct_rusage

    from bakemesh.keeper import kernel, tree
else:
    import kernel
    import tree


class Warden:
    """One tree from its start to its last process."""

    def __init__(self, wake: int) -> None:
        self.wake = wake
        self.poller = select.poll()
        self.poller.register(wake, select.POLLIN)
        self.main = 0  # 0: it never began
        self.kill_at: float | None = None
        self.killing_since: float | None = None
        self.next_round = 0.0
        self.named = False
        self.killed = 0
        self.max_rss = 0
        self.cpu = 0.0

    # What the heirs know

    def heard(self, fd: int) -> None:
        """A descriptor other than `wake` is readable."""
        raise NotImplementedError

    def main_ended(self, status: int) -> None:
        """The main process was reaped."""
        raise NotImplementedError

    def say(self, *fields: bytes | int) -> bool:
        """Sends one frame to whoever listens; whether there was somebody."""
        raise NotImplementedError

    # What they share

    def watch(self) -> None:
        """Until no process of the tree lives."""
        while tree.reap(self.ended):
            for fd, _ in self.poller.poll(self.work()):
                if fd == self.wake:
                    drain(fd)
                else:
                    self.heard(fd)

    def ended(self, pid: int, status: int, usage: "struct_rusage") -> None:
        """A child was reaped: its usage holds that of the children it had waited for."""
        self.max_rss = max(self.max_rss, usage.ru_maxrss)
        self.cpu += usage.ru_utime + usage.ru_stime
        if self.killing_since is not None and tree.killed(status):
            self.killed += 1
        if pid == self.main:
            self.main_ended(status)

    def end_within(self, seconds: float) -> None:
        """TERM and CONT to all where there is a grace and nobody asked before; then KILL."""
        now = monotonic()
        if seconds > 0 and self.kill_at is None:
            tree.terminate_all(os.getpid())
        if self.named:
            self.name_survivors()
        self.kill_by(now + seconds)

    def kill_by(self, when: float) -> None:
        """KILL begins at `when`; what was asked earlier is never put off."""
        self.kill_at = when if self.kill_at is None else min(self.kill_at, when)

    def name_survivors(self) -> None:
        """Tells who does not die of KILL."""
        self.named = True
        self.say(b"alive", self.killed, *tree.survivors(os.getpid()))

    def work(self) -> float | None:
        """Does what is due; returns for how many ms nothing is to do, None: for ever."""
        if self.kill_at is None:
            return None
        now = monotonic()
        if now < self.kill_at:
            return (self.kill_at - now) * 1000 + 1
        if self.killing_since is None:
            self.killing_since = now
        if now >= self.next_round:
            tree.fell(os.getpid(), tree.look(), tree.kill)
            late = now - self.killing_since > tree.WHO_S
            if late and not self.named:
                self.name_survivors()
            self.next_round = now + (tree.SLOW_ROUND_S if late else tree.ROUND_S)
        return (self.next_round - now) * 1000


def drain(fd: int) -> None:
    """Empties a wake-up pipe."""
    try:
        while len(os.read(fd, 4096)) == 4096:
            pass
    except BlockingIOError:
        pass


def settle(name: bytes) -> None:
    """Makes a fresh fork of the keeper the subreaper of a tree of its own, in a session of its own."""
    kernel.name(name)
    kernel.become_subreaper()
    os.setsid()


def alive(owner: int) -> bool:
    """Whether the process of a pidfd lives: nothing that was queued may begin after the Builder's death."""
    watch = select.poll()
    watch.register(owner, select.POLLIN)
    return not watch.poll(0)
