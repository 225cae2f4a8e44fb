"""The minder of one step: a fork of the keeper that is the subreaper of that step alone.

Guarantees: when the Builder, the keeper or this connection ends, the whole step is killed; "none" is said
only when no process of the step lives; the CPU time it tells is that of every process of the step. What it
shares with shims is in `warden.py`.

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

    from bakemesh.keeper import launch, tree, warden, wire
else:
    import launch
    import tree
    import warden
    import wire

NAME = b"bakemesh-minder"


class Minder(warden.Warden):
    """One step from its start to its last process."""

    def __init__(self, control: "socket", owner: int, keeper: int, wake: int) -> None:
        super().__init__(wake)
        self.control = control
        self.owner = owner  # pidfds: readable when the process is dead
        self.keeper = keeper
        for fd in (control.fileno(), owner, keeper):
            self.poller.register(fd, select.POLLIN)
        self.cut = False

    def start(self, request: "wire.Start", stdio: list[int], scores: tuple[int, int]) -> None:
        """Starts the main process, unless the Builder died: nothing that was queued may begin then."""
        if not warden.alive(self.owner):
            return
        try:
            self.main = launch.launch(request, stdio, *scores)
        except launch.Refused as wrong:
            self.say(b"refused", wrong.stage, wrong.number)
        else:
            self.say(b"started", self.main, tree.start_time(self.main), os.getpid())

    def run(self) -> None:
        """Until nothing of the step lives."""
        self.watch()
        if self.main:
            self.say(b"none", self.killed, self.max_rss, round(self.cpu * 1e6))

    def say(self, *fields: bytes | int) -> bool:
        """To the Builder."""
        return wire.send(self.control, *fields)

    def main_ended(self, status: int) -> None:
        """What it left may run on, until the Builder asks for a sweep."""
        cut = int(self.cut and os.WIFSIGNALED(status))
        self.say(b"exited", status, self.max_rss, round(self.cpu * 1e6), cut)

    def heard(self, fd: int) -> None:
        """The Builder speaks, or somebody without whom the step must not run is gone."""
        if fd == self.control.fileno():
            self.obey()
        else:
            self.owner_gone(fd)

    def obey(self) -> None:
        """A command of the Builder, or the end of its connection."""
        verb, grace = wire.command(self.control)
        if verb == b"kill":
            self.end_within(int(grace) / 1000)
        elif verb == b"sweep":
            if self.kill_at is None:
                self.kill_by(monotonic())
        else:
            self.poller.unregister(self.control)
            self.kill_by(monotonic())

    def owner_gone(self, fd: int) -> None:
        """The Builder or the keeper is dead: the step dies with it, without a grace."""
        self.poller.unregister(fd)
        if fd == self.keeper and self.kill_at is None:
            self.cut = True
        self.kill_by(monotonic())


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
    warden.settle(NAME)
    stdio, memory = wire.split_fds(wire.stdio_letters(frame), fds)
    request = wire.parse_start(wire.whole(frame, memory))
    minder = Minder(control, owner, keeper, wake)
    minder.start(request, stdio, scores)
    for fd in fds:
        os.close(fd)
    minder.run()
