"""The start of one step's main process, with the reason when it does not come to that.

Guarantees: the process is the leader of a session of its own and has default signals, an empty mask, a raised
oom_score_adj, the given stdio (else /dev/null) and no other descriptor. It is `posix_spawn`, several times
cheaper than a fork of an interpreter; what that lacks (folder, score) the minder takes on itself for the
moment of the start, for the process to inherit. Leaves out: it waits for the exec, and a folder on a dead
network mount can hold it for ever: then the keeper is asked to kill the minder (`drop`).
"""

import os
from _signal import SIG_IGN, getsignal  # type: ignore[import-not-found]
from errno import EACCES, ENOENT, ENOTDIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from bakemesh.keeper.wire import Start

HIGHEST_SIGNAL = 64


class Refused(Exception):
    """Raised when the process was not started; `stage` is where it failed."""

    def __init__(self, stage: bytes, number: int) -> None:
        super().__init__(stage, number)
        self.stage = stage
        self.number = number


def execute(request: "Start", stdio: list[int]) -> int:
    """Starts the program and returns its pid. Raises Refused."""
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, fd, target)
        if fd >= 0
        else (os.POSIX_SPAWN_OPEN, target, "/dev/null", os.O_RDWR, 0)
        for target, fd in enumerate(stdio)
    ]
    # Handlers fall to the default with exec; ignored signals would stay ignored, inherited ones too.
    ignored = [number for number in range(1, HIGHEST_SIGNAL + 1) if getsignal(number) == SIG_IGN]
    missing = denied = 0
    for path in _candidates(request):
        try:
            os.stat(path)  # a folder of PATH without it costs µs, a start that fails a tenth of a ms and more
            return os.posix_spawn(
                path,
                request.argv,
                request.env,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=ignored,
            )
        except OSError as wrong:
            if wrong.errno in (ENOENT, ENOTDIR):
                if os.path.isfile(path):  # it is there, what it names as its interpreter is not
                    raise Refused(b"interpreter", ENOENT) from None
                missing = wrong.errno
            elif wrong.errno == EACCES:
                denied = EACCES  # a later folder may hold one that may be run
            else:
                raise Refused(b"exec", wrong.errno or 0) from None
    raise Refused(b"exec", denied or missing or ENOENT)


def launch(
    request: "Start",
    stdio: list[int],
    own_score: int,
    step_score: int,
    begin: "Callable[[Start, list[int]], int]" = execute,
) -> int:
    """Starts the process, by `begin` where folder and score are as they must be, and returns its pid.
    Raises Refused."""
    if request.cwd:
        try:
            os.chdir(request.cwd)
        except OSError as wrong:
            raise Refused(b"cwd", wrong.errno or 0) from None
    set_oom_score(step_score)
    try:
        return begin(request, stdio)
    finally:
        set_oom_score(own_score)
        os.chdir("/")  # no mount is held busy for the step's life


def _candidates(request: "Start") -> list[bytes]:
    name = request.argv[0]
    if b"/" in name:
        return [name]
    folders = request.env.get(b"PATH", os.defpath.encode()).split(b":")
    return [os.path.join(folder or b".", name) for folder in folders]


def set_oom_score(score: int) -> None:
    """Sets the own score; what is started then has it, and all below it. Without where /proc is read-only."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(fd, b"%d" % score)
    except OSError:
        pass
    finally:
        os.close(fd)
