"""The minder of one step: a fork of the keeper that is the subreaper of that step alone.

Guarantees: when the Builder, the keeper or this connection ends, the whole step is killed; "none" is said
only when no process of the step lives; the CPU time it tells is that of every process of the step. Its state
is three facts: whether the main process ended, when KILL is to begin (None: nobody asked), since when it is
being done.

    start ──→ main runs ──ended──→ leftovers run ──none left──→ "none", exit
                  │ kill(grace), or an owner is gone │ sweep, kill, or an owner is gone
                  └──────→ TERM+CONT, grace ──→ KILL every 2 ms ──none left──→ "none", exit
                                                   │ 5 s
                                                   └→ "alive", KILL every 200 ms ──none left──→ "none", exit
"""

import os
import select
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from resource import struct_rusage

    from bakemesh.keeper import kernel, launch, tree, wire
else:
    import kernel
    import launch
    import tree
    import wire

NAME = b"bakemesh-minder"


class Minder:
    """One step from its start to its last process."""

    def __init__(self, control: "socket", owner: int, keeper: int, wake: int) -> None:
        self.control = control
        self.owner = owner  # pidfds: readable when the process is dead
        self.keeper = keeper
        self.wake = wake
        self.poller = select.poll()
        for fd in (control.fileno(), owner, keeper, wake):
            self.poller.register(fd, select.POLLIN)
        self.main = 0  # 0: it never began
        self.kill_at: float | None = None
        self.killing_since: float | None = None
        self.next_round = 0.0
        self.named = False
        self.cut = False
        self.killed = 0
        self.max_rss = 0
        self.cpu = 0.0

    def start(self, request: "wire.Start", stdio: list[int], scores: tuple[int, int]) -> None:
        """Starts the main process, unless the Builder died: nothing that was queued may begin then."""
        watch = select.poll()
        watch.register(self.owner, select.POLLIN)
        if watch.poll(0):
            return
        try:
            self.main = launch.launch(request, stdio, *scores)
        except launch.Refused as wrong:
            wire.send(self.control, b"refused", wrong.stage, wrong.number)
        else:
            wire.send(self.control, b"started", self.main, tree.start_time(self.main), os.getpid())

    def run(self) -> None:
        """Until nothing of the step lives."""
        while tree.reap(self.ended):
            for fd, _ in self.poller.poll(self.work()):
                if fd == self.wake:
                    drain(fd)
                elif fd == self.control.fileno():
                    self.obey()
                elif fd in (self.owner, self.keeper):
                    self.owner_gone(fd)
        if self.main:
            wire.send(self.control, b"none", self.killed, self.max_rss, round(self.cpu * 1e6))

    def ended(self, pid: int, status: int, usage: "struct_rusage") -> None:
        """A child was reaped: its usage holds that of the children it had waited for."""
        self.max_rss = max(self.max_rss, usage.ru_maxrss)
        self.cpu += usage.ru_utime + usage.ru_stime
        if self.killing_since is not None and tree.killed(status):
            self.killed += 1
        if pid != self.main:
            return
        cut = int(self.cut and os.WIFSIGNALED(status))
        wire.send(self.control, b"exited", status, self.max_rss, round(self.cpu * 1e6), cut)

    def obey(self) -> None:
        """A command of the Builder, or the end of its connection."""
        command, fds, _ = wire.receive(self.control)
        for fd in fds:
            os.close(fd)
        verb, _, grace = command.partition(b"\0")
        now = monotonic()
        if verb == b"kill":
            seconds = int(grace) / 1000
            if seconds > 0 and self.kill_at is None:
                tree.terminate_all(os.getpid())
            self.kill_by(now + seconds)
        elif verb == b"sweep":
            self.kill_by(now if self.kill_at is None else self.kill_at)
        else:
            self.poller.unregister(self.control)
            self.kill_by(now)

    def owner_gone(self, fd: int) -> None:
        """The Builder or the keeper is dead: the step dies with it, without a grace."""
        self.poller.unregister(fd)
        if fd == self.keeper and self.kill_at is None:
            self.cut = True
        self.kill_by(monotonic())

    def kill_by(self, when: float) -> None:
        """KILL begins at `when`; what was asked earlier is never put off."""
        self.kill_at = when if self.kill_at is None else min(self.kill_at, when)

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
                self.named = True
                wire.send(self.control, b"alive", self.killed, *tree.survivors(os.getpid()))
            self.next_round = now + (tree.SLOW_ROUND_S if late else tree.ROUND_S)
        return (self.next_round - now) * 1000


def drain(fd: int) -> None:
    """Empties a wake-up pipe."""
    try:
        while len(os.read(fd, 4096)) == 4096:
            pass
    except BlockingIOError:
        pass


def mind(
    control: "socket",
    frame: bytes,
    fds: list[int],
    owner: int,
    keeper: int,
    wake: int,
    scores: tuple[int, int],
) -> None:
    """The life of a minder, after the fork; `fds` are those of the frame after its own connection.

    `scores` are the oom_score_adj of its own and of steps.
    """
    kernel.name(NAME)
    kernel.become_subreaper()
    os.setsid()
    fields = frame.split(b"\0", 3)
    stdio, memory = wire.split_fds(fields[2], fds)
    request = wire.parse_start(wire.read_memory(memory) if fields[0] == b"large" else frame)
    minder = Minder(control, owner, keeper, wake)
    minder.start(request, stdio, scores)
    for fd in fds:
        os.close(fd)
    minder.run()
