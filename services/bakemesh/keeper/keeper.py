"""The keeper's program: `python -I -S keeper.py FD [no-new-privileges] [cgroup=FOLDER]`; with
`preload=MODULE` it is a nursery (`nursery.py`).

FD is a SEQPACKET socket whose other end is the Builder's.

Guarantees: a request is answered on its own connection, by its minder or shim; none is begun after the
Builder's death; what a dead one leaves comes up here, to the next subreaper, and is killed; when the Builder
is gone the keeper ends last, with nothing below it but shims, which run on without it. It runs no step itself
and ignores every signal that can be ignored: a shell's Ctrl-C or a service's stop is the Builder's to act on.
"""

import gc
import os
import select
import sys
from _signal import SIG_DFL, SIG_IGN, SIG_SETMASK, SIGCHLD, pthread_sigmask, set_wakeup_fd, signal  # type: ignore[import-not-found]
from _socket import SO_PEERCRED, SOL_SOCKET, socket
from _struct import unpack
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from bakemesh.keeper import kernel, launch, limits, minder, nursery, shim, tree, warden, wire
else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import kernel
    import launch
    import limits
    import minder
    import nursery
    import shim
    import tree
    import warden
    import wire

NAME = b"bakemesh-keeper"
IGNORED = (1, 2, 3, 10, 12, 13, 14, 15)  # HUP INT QUIT USR1 USR2 PIPE ALRM TERM
MINDERS_S = 1.0  # after the Builder's death: for minders to end their steps themselves, which is gentler
# Odd raises: they are inherited, and tell steps' processes from components' and others. Steps go first.
OOM_RAISE, OOM_RAISE_COMPONENTS, OOM_HIGHEST = 503, 307, 1000


class Keeper:
    """Requests in, minders out."""

    def __init__(self, connection: socket, begin: "Callable[[wire.Start, list[int]], int]") -> None:
        self.connection = connection
        self.begin = begin  # starts a component
        self.me = os.getpid()
        self.itself = os.pidfd_open(self.me)  # minders watch it: opened here, it can be no other process
        self.owner = owner_of(connection)
        self.wake = wake_on_child()
        own = int(tree.read("/proc/self/oom_score_adj"))
        self.scores = own, min(OOM_HIGHEST, own + OOM_RAISE)
        self.shim_scores = own, min(OOM_HIGHEST, own + OOM_RAISE_COMPONENTS)
        self.minders: dict[int, int] = {}  # pid → request; shims too
        self.shims: set[int] = set()
        self.lost: list[int] = []  # requests whose minder was killed, not yet told as gone
        self.killing_since: float | None = None
        self.next_round = 0.0
        self.killed = 0
        self.poller = select.poll()
        for fd in (connection.fileno(), self.owner, self.wake):
            self.poller.register(fd, select.POLLIN)
        self.owner_watch = select.poll()
        self.owner_watch.register(self.owner, select.POLLIN)

    def run(self) -> None:
        """Until the Builder is gone and nothing lives below."""
        wire.send(self.connection, b"ready", wire.VERSION)
        while True:
            for fd, _ in self.poller.poll(self.work()):
                if fd == self.wake:
                    warden.drain(fd)
                    tree.reap(self.ended)
                elif self.owner_watch.poll(0) or not self.serve():
                    self.end()
                    return

    def serve(self) -> bool:
        """Takes one request; False at the end of the connection."""
        frame, fds, some_lost = wire.receive(self.connection)
        if not frame:
            return False
        try:
            kind, ident = wire.head(frame)
            if kind == b"drop":
                self.drop(ident)
                return True
            control = socket(fileno=fds.pop(0))
        except (wire.Broken, IndexError):
            for fd in fds:
                os.close(fd)
            return True  # nobody to tell; the other ends of its descriptors read their end
        try:
            if some_lost:  # this process has no room for further descriptors
                wire.send(control, b"refused", b"stdio", 24)
                return True
            try:
                pid = os.fork()
            except OSError as wrong:
                wire.send(control, b"refused", b"fork", wrong.errno or 0)
                return True
            if pid == 0:
                self.become_minder(control, frame, fds)
            self.minders[pid] = ident
            if wire.is_shim(frame):
                self.shims.add(pid)
        finally:
            control.close()
            for fd in fds:
                os.close(fd)
        return True

    def drop(self, ident: int) -> None:
        """Kills a minder, which a hung mount may hold in the start; its step is killed after it."""
        for pid, request in self.minders.items():
            if request == ident:
                os.kill(pid, tree.KILL)

    def become_minder(self, control: socket, frame: bytes, fds: list[int]) -> None:
        """The child's side of the fork. Never returns."""
        code = 70
        try:
            self.connection.close()
            os.close(self.wake)
            wake = wake_on_child()
            if wire.is_shim(frame):
                shim.mind(control, frame, fds, self.owner, self.itself, wake, self.shim_scores, self.begin)
            else:
                minder.mind(control, frame, fds, self.owner, self.itself, wake, self.scores)
            code = 0
        except BaseException:  # noqa: BLE001 - told on stderr; a fork must never return into the loop
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def ended(self, pid: int, status: int, _: object) -> None:
        """A child was reaped: a minder or shim, or what a dead one left."""
        ident = self.minders.pop(pid, None)
        self.shims.discard(pid)
        if ident is None:
            self.killed += tree.killed(status)
        elif status != 0:
            if not self.lost:
                self.killed = 0
            self.lost.append(ident)
            self.killing_since = monotonic()
            self.next_round = 0.0

    def work(self) -> float | None:
        """Kills what dead minders left; returns for how many ms nothing is to do, None: for ever."""
        if self.killing_since is None:
            return None
        now = monotonic()
        if now < self.next_round:
            return (self.next_round - now) * 1000
        tree.reap(self.ended)
        spared = set(self.minders)
        if not tree.fell(self.me, tree.look(), tree.kill, spared):
            self.tell_gone([])
            self.killing_since = None
            return None
        late = now - self.killing_since > tree.WHO_S
        if late and self.lost:
            self.tell_gone(tree.survivors(self.me, spared))
        self.next_round = now + (tree.SLOW_ROUND_S if late else tree.ROUND_S)
        return (self.next_round - now) * 1000

    def tell_gone(self, survivors: list[bytes]) -> None:
        """What the dead minders had is dead, but for `survivors`."""
        for ident in self.lost:
            wire.send(self.connection, b"gone", ident, self.killed, *survivors)
        self.lost.clear()

    def end(self) -> None:
        """The Builder is gone, as minders see too; what they do not end in time is ended here, with them.

        What a shim minds is spared with it.
        """
        self.connection.close()
        began = monotonic()
        waiting = select.poll()
        waiting.register(self.wake, select.POLLIN)
        while tree.reap(self.ended):
            age = monotonic() - began
            spared = self.shims if age > MINDERS_S else set(self.minders)
            if not tree.fell(self.me, tree.look(), tree.kill, spared) and spared <= self.shims:
                return  # shims only: they come up to the next subreaper, which spares them too
            waiting.poll((tree.SLOW_ROUND_S if age > tree.WHO_S else tree.ROUND_S) * 1000)
            warden.drain(self.wake)


def owner_of(connection: socket) -> int:
    """A pidfd of the process that made the connection and started this one. Ends where that is dead."""
    pid = unpack("3i", connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12))[0]
    try:
        owner = os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(0)
    if os.getppid() != pid:  # dead before it was pinned: the pid may be another's by now
        os._exit(0)
    return owner


def wake_on_child() -> int:
    """A descriptor that is readable when a child ended."""
    wake, wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal(SIGCHLD, lambda *_: None)
    set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    return wake


def main(arguments: list[str]) -> None:
    """The keeper's life."""
    for number in range(3):  # a descriptor of a step must not land where its stdio goes
        try:
            os.fstat(number)
        except OSError:
            os.open("/dev/null", os.O_RDWR)
    connection = socket(fileno=int(arguments[0]))
    os.set_inheritable(connection.fileno(), False)
    kernel.name(NAME)
    kernel.become_subreaper()
    cgroup = module = ""
    for option in arguments[1:]:
        if option == "no-new-privileges":
            kernel.no_new_privileges()
        elif option.startswith("cgroup="):
            cgroup = option.removeprefix("cgroup=")
            limits.enter(os.fsencode(cgroup))  # a net: where that fails it goes on without
        elif option.startswith("preload="):
            module = option.removeprefix("preload=")
    for number in IGNORED:
        signal(number, SIG_IGN)
    signal(SIGCHLD, SIG_DFL)  # an ignored one, inherited, would make every exit code read as 0
    pthread_sigmask(SIG_SETMASK, ())
    begin = launch.execute
    if module:
        kernel.name(nursery.NAME)
        begin = nursery.Nursery(module).bear
    keeper = Keeper(connection, begin)
    # What a collection touches is copied in every minder: nothing here makes cycles.
    gc.collect()
    gc.disable()
    gc.freeze()
    keeper.run()
    if cgroup:  # the Builder may be dead, and nobody else is left to take it away
        limits.enter(os.fsencode(os.path.dirname(cgroup)))
        try:  # noqa: SIM105 - contextlib is an import more
            os.rmdir(cgroup)
        except OSError:
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
