"""The shim of one component: a fork of the keeper that lets go of both keeper and Builder.

Guarantees: the component runs on when Builder and keeper die; a Builder finds its shim by the socket in the
component's folder, and the newest connection is the one that counts; what the main process leaves is ended
with it (TERM, a second, KILL); the exit file is written, and "over" told, only when no process of the
component lives. Then the shim ends; where no disk takes the exit file, it stays until a Builder was told,
or the folder is removed, and with it the way to the shim.

    main runs ──kill(grace)──→ TERM+CONT, grace ──→ KILL every 2 ms ──none left──→ exit file, "over", exit
        └──ended, or over its memory──→ TERM+CONT to what is left, 1 s ──→ KILL …
"""

import os
import select
from errno import EBUSY
from time import monotonic, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable

    from bakemesh.keeper import folder, kernel, launch, limits, logs, tree, warden, wire
else:
    from _socket import socket

    import folder
    import kernel
    import launch
    import limits
    import logs
    import tree
    import warden
    import wire

NAME = b"bakemesh-shim"
LEFT_S = 1.0  # for what the main process left to end by itself
SAVE_AGAIN_S = 1.0


class Shim(warden.Warden):
    """One component from its start to its last process."""

    def __init__(self, control: "socket", order: "wire.Order", wake: int) -> None:
        super().__init__(wake)
        self.order = order
        control.setblocking(False)
        self.control: socket | None = control
        self.folder = folder.Folder(order.folder)
        self.log = logs.Log(self.folder.fd, order.log_bytes, order.log_files)
        self.listener = self.folder.listen()
        self.limits = limits.Limits(order)
        self.marked = kernel.mark(order.mark)
        for fd in (control.fileno(), self.listener.fileno()):
            self.poller.register(fd, select.POLLIN)
        self.began = 0.0
        self.start_time = 0
        self.status = 0
        self.at = 0.0
        self.reason = b""

    # The start

    def start(self, scores: tuple[int, int], begin: "Callable[[wire.Start, list[int]], int]") -> None:
        """Starts the main process by `begin`. Raises launch.Refused, OSError."""
        self.identify()  # before: a Builder that dies now must find who starts it
        if self.order.leave and not limits.enter(self.order.leave):
            raise launch.Refused(b"cgroup", EBUSY)
        self.limits.enter()
        self.began = time()
        self.main = launch.launch(self.order.start, [-1, self.log.fd, self.log.fd], *scores, begin)
        if self.limits.cgroup:
            limits.enter(self.order.leave)
        self.start_time = tree.start_time(self.main)
        self.identify()
        self.tell_running()

    def refuse(self, stage: bytes, number: int) -> None:
        """Leaves nothing of a start that failed: its process too may be there, that the disk did not take."""
        self.kill_by(monotonic())
        self.watch()
        self.limits.remove()
        self.folder.withdraw()
        self.say(b"refused", stage, number)

    def identify(self) -> None:
        """Writes who runs here."""
        me = os.getpid()
        self.folder.write_identity(
            folder.lines(
                instance=self.order.instance,
                boot=self.folder.boot,
                shim=me,
                shim_start=tree.start_time(me),
                pid=self.main,
                start=self.start_time,
                began=b"%.6f" % self.began,
                mark=self.order.mark if self.marked else 0,
                held=b" ".join(self.limits.held),
            )
        )

    def tell_running(self) -> None:
        """What a Builder must know of it."""
        held = b" ".join(self.limits.held)
        me = os.getpid()
        self.say(
            b"running",
            self.main,
            self.start_time,
            me,
            tree.start_time(me),
            round(self.began * 1e6),
            self.order.instance,
            held,
        )

    # The life

    def run(self) -> None:
        """Until nothing of the component lives, and that is written down or told."""
        self.watch()
        self.killed_for_memory()
        self.limits.remove()
        try:  # noqa: SIM105 - contextlib is an import more
            self.log.finish()
        except OSError:  # nothing about a log may hold back an end
            pass
        text = folder.lines(
            instance=self.order.instance,
            boot=self.folder.boot,
            pid=self.main,
            start=self.start_time,
            status=self.status,
            at=b"%.6f" % self.at,
            reason=self.reason,
            killed=self.killed,
            rss=self.max_rss,
            cpu=round(self.cpu * 1e6),
        )
        while True:
            saved = self.folder.write_exit(text)
            if saved:
                self.folder.forget(folder.SOCKET)
            if self.say(b"over", text) or saved:
                return
            for fd, _ in self.poller.poll(SAVE_AGAIN_S * 1000):
                if fd == self.wake:
                    warden.drain(fd)  # the last deaths' word: unread it would end every wait at once
                else:
                    self.heard(fd)

    def work(self) -> float | None:
        """Kills, looks at log and memory; returns for how many ms nothing is to do."""
        kill = super().work()
        now = monotonic()
        if self.kill_at is None and self.limits.over(now, os.getpid()):
            self.reason = limits.REASON
            self.kill_by(now)
            kill = 0.0
        try:
            due = self.log.work(now)
        except OSError:  # nothing about a log may end a component
            due = self.log.due = now + logs.LONGEST_S
        if limits.SAMPLED in self.limits.held:
            due = min(due, self.limits.due)
        wait = max(0.0, due - now) * 1000 + 1
        return wait if kill is None else min(kill, wait)

    def main_ended(self, status: int) -> None:
        """The component is over, and what is left of it goes; a grace that runs is not cut short."""
        self.status = status
        self.at = time()
        if self.kill_at is None:
            self.killed_for_memory()
            self.end_within(LEFT_S)

    def killed_for_memory(self) -> None:
        """Notes it where the kernel did that."""
        if not self.reason and tree.killed(self.status) and self.limits.killed():
            self.reason = limits.REASON

    # The Builder

    def say(self, *fields: bytes | int) -> bool:
        """To the newest Builder, where there is one."""
        if self.control is None:
            return False
        try:
            return wire.send(self.control, *fields)
        except OSError:  # it does not read: an answer more makes no difference to it
            return False

    def heard(self, fd: int) -> None:
        """A new Builder comes, or the present one speaks."""
        if fd == self.listener.fileno():
            self.accept()
        elif self.control is not None and fd == self.control.fileno():
            self.obey(self.control)

    def accept(self) -> None:
        """The newest connection counts: the one before it is ended."""
        try:
            fd, _ = self.listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return  # it went away again
        self.let_go()
        self.control = socket(fileno=fd)
        self.control.setblocking(False)
        self.poller.register(self.control, select.POLLIN)

    def let_go(self) -> None:
        """Ends the connection; the component runs on."""
        if self.control is not None:
            self.poller.unregister(self.control)
            self.control.close()
            self.control = None

    def obey(self, control: "socket") -> None:
        """A command, or the end of the connection."""
        try:
            verb, grace = wire.command(control)
        except BlockingIOError:
            return
        if verb == b"kill":
            self.end_within(int(grace) / 1000)
        elif verb == b"status":
            self.tell_running()
        else:
            self.let_go()


def mind(
    control: "socket",
    frame: bytes,
    fds: list[int],
    owner: int,
    keeper: int,
    wake: int,
    scores: tuple[int, int],
    begin: "Callable[[wire.Start, list[int]], int]",
) -> None:
    """The life of a shim, after the fork. `scores` are the oom_score_adj of its own and of components;
    `begin` starts a component (`launch.execute`, or a nursery's fork)."""
    warden.settle(NAME)
    _, memory = wire.split_fds(wire.stdio_letters(frame), fds)
    order = wire.parse_order(wire.whole(frame, memory))
    for fd in fds:
        os.close(fd)
    if not warden.alive(owner):
        return
    os.close(owner)
    os.close(keeper)
    try:
        shim = Shim(control, order, wake)
    except OSError as wrong:
        wire.send(control, b"refused", b"folder", wrong.errno or 0)
        return
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number, target in enumerate((null, null, shim.log.fd)):  # the Builder's stderr may be a pipe
        os.dup2(target, number)
    os.close(null)
    try:
        shim.start(scores, begin)
    except launch.Refused as wrong:
        shim.refuse(wrong.stage, wrong.number)
    except OSError as wrong:
        shim.refuse(b"folder", wrong.errno or 0)
    else:
        shim.run()
