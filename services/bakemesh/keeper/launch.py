"""Fork and exec of one step's main process, with the reason when it does not come to that.

Guarantees: the child is the leader of a session of its own, dies with its minder, has default signals, an
empty mask, a raised oom_score_adj, the given stdio (else /dev/null) and no other descriptor. Never waits: the
reason is read from a pipe in the minder's loop, for a folder on a dead network mount can hold a child for
ever. Leaves out: nothing is retried.
"""

import os
from _signal import SIG_DFL, SIG_IGN, SIG_SETMASK, getsignal, pthread_sigmask, signal  # type: ignore[import-not-found]
from errno import EACCES, ENOENT, ENOTDIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bakemesh.keeper import kernel
    from bakemesh.keeper.wire import Start
else:
    import kernel

HIGHEST_SIGNAL = 64


def launch(request: "Start", stdio: list[int], oom_score: int) -> tuple[int, int]:
    """Forks the process; returns its pid and the descriptor that tells how its exec went (see `outcome`).

    Raises OSError where not even that is possible.
    """
    report, report_end = os.pipe()
    try:
        minder = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(request, stdio, oom_score, minder, report_end)
    except OSError:
        os.close(report)
        raise
    finally:
        os.close(report_end)
    return pid, report


def outcome(report: int) -> tuple[bytes, int] | None:
    """Stage and errno of a failed exec, None where the program runs. For when `report` is readable."""
    said = os.read(report, 64)
    if not said:
        return None
    stage, _, number = said.partition(b" ")
    return stage, int(number)


def _become(request: "Start", stdio: list[int], oom_score: int, minder: int, report: int) -> None:
    """The child: becomes the program or says why not. Never returns."""
    stage = b"stdio"
    try:
        os.setsid()
        kernel.die_with_parent()
        if os.getppid() != minder:
            os._exit(127)  # it died before the line above could matter
        _raise_oom_score(oom_score)
        for target, fd in enumerate(stdio):
            os.dup2(fd if fd >= 0 else os.open("/dev/null", os.O_RDWR), target, True)
        _default_signals()
        if request.cwd:
            stage = b"cwd"
            os.chdir(request.cwd)
        stage = b"exec"
        _execute(request)
    except _InterpreterMissing:
        os.write(report, b"interpreter %d" % ENOENT)
    except OSError as wrong:
        os.write(report, b"%s %d" % (stage, wrong.errno or 0))
    finally:
        os._exit(127)


class _InterpreterMissing(Exception):
    """Raised when a file is there and its interpreter is not: the system says ENOENT for both."""


def _execute(request: "Start") -> None:
    name = request.argv[0]
    if b"/" in name:
        paths = [name]
    else:
        folders = request.env.get(b"PATH", os.defpath.encode()).split(b":")
        paths = [os.path.join(folder or b".", name) for folder in folders]
    denied: OSError | None = None
    missing: OSError | None = None
    for path in paths:
        try:
            os.execve(path, request.argv, request.env)
        except OSError as wrong:
            if wrong.errno in (ENOENT, ENOTDIR):
                missing = wrong
                if os.path.isfile(path):
                    raise _InterpreterMissing from wrong
            elif wrong.errno == EACCES:
                denied = denied or wrong  # a later folder may hold one that may be run
            else:
                raise
    raise denied or missing or OSError(ENOENT, "no folder to look in")


def _raise_oom_score(score: int) -> None:
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(fd, b"%d" % score)
        finally:
            os.close(fd)
    except OSError:  # the step runs without, where /proc is read-only
        pass


def _default_signals() -> None:
    # Handlers fall to the default with exec; ignored signals would stay ignored, inherited ones too.
    for number in range(1, HIGHEST_SIGNAL + 1):
        if getsignal(number) == SIG_IGN:
            signal(number, SIG_DFL)
    pthread_sigmask(SIG_SETMASK, ())
