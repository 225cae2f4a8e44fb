"""What makes a keeper a nursery: it has imported what a component needs, and components are forks of it.

`python keeper.py FD preload=MODULE room=…`, without -I and -S: the interpreter is the one that the components
would be started with, and the environment what they all have in common. Each component's command line is
`python -m MODULE ARGUMENT…`; its shim forks once more, and the fork runs that module as `python -m` would:
with the arguments, environment, folder, session, signals, stdio, score and limits of an exec'ed one and no
other descriptor, with its own `__main__`, and an end by its exit code after threads and exit functions.

It differs in this: the hash seed and what was imported are the nursery's; `__del__` is not called at the end;
the stack has frames of the keeper at its bottom. Who needs an interpreter of its own, by PYTHONPATH say, is
executed instead (decided by who asks). Guarantees: a fork that lost its shim before it can be known as the
component's ends by itself; a signal sent at any time after its start counts.
"""

import os
import sys
from _signal import (  # type: ignore[import-not-found]
    SIG_BLOCK,
    SIG_DFL,
    SIG_IGN,
    SIG_SETMASK,
    SIGINT,
    SIGKILL,
    SIGPIPE,
    SIGSTOP,
    SIGXFSZ,
    default_int_handler,
    getsignal,
    pthread_sigmask,
    set_wakeup_fd,
    signal,
    valid_signals,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bakemesh.keeper import guise, kernel, launch, tree
    from bakemesh.keeper.wire import Start
else:
    import guise
    import kernel
    import launch
    import tree

NAME = b"bakemesh-nurse"
FAILED, NOT_FLUSHED = 70, 120


class Nursery:
    """Ready to fork. Raises what the import raises; RuntimeError where a thread was started, which a fork
    would not have; OSError where forks could not be known by their environment."""

    def __init__(self, module: str) -> None:
        conceal(os.path.dirname(os.path.abspath(__file__)))
        self.room = guise.Room(tree.stat(os.getpid()))
        import importlib
        import runpy  # noqa: F401 - not in the first component

        importlib.import_module(module)
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            raise RuntimeError(f"{module} has {threads - 1} threads after its import: it cannot be forked")

    def bear(self, request: "Start", stdio: list[int]) -> int:
        """Starts the component and returns its pid. Raises launch.Refused."""
        shim = os.getpid()
        before = pthread_sigmask(SIG_BLOCK, valid_signals())  # what comes too early waits
        try:
            pid = os.fork()
        except OSError as wrong:
            raise launch.Refused(b"fork", wrong.errno or 0) from None
        else:
            if pid == 0:
                self.live(request, stdio, shim)
            return pid
        finally:
            pthread_sigmask(SIG_SETMASK, before)

    def live(self, request: "Start", stdio: list[int], shim: int) -> None:
        """The child's side of the fork. Never returns."""
        code = FAILED
        try:
            os.setsid()
            self.dress(request)
            if os.getppid() != shim:  # it died before this could be found
                os._exit(FAILED)
            settle(stdio)
            code = run(request)
        except BaseException:  # noqa: BLE001 - told on stderr; a fork must never return into the shim
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def dress(self, request: "Start") -> None:
        """Takes its environment, and is known by it."""
        import time

        os.environ.clear()  # C holds none of the old texts any more, which are overwritten
        self.room.show(request.argv, request.env)
        kernel.name(os.path.basename(request.argv[0]))
        os.environb.update(request.env)
        time.tzset()


def conceal(folder: str) -> None:
    """Takes the keeper's own modules out of what can be imported: components may have some of these names."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    for name, module in list(sys.modules.items()):
        if name != "__main__" and os.path.dirname(getattr(module, "__file__", None) or "") == folder:
            del sys.modules[name]


def settle(stdio: list[int]) -> None:
    """Signals, stdio, descriptors and imports as after an exec."""
    import gc

    set_wakeup_fd(-1)
    for number in valid_signals() - {SIGKILL, SIGSTOP}:
        if getsignal(number) not in (SIG_DFL, None):
            signal(number, SIG_DFL)
    for number in (SIGPIPE, SIGXFSZ):  # what the interpreter itself sets
        signal(number, SIG_IGN)
    signal(SIGINT, default_int_handler)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for target, fd in enumerate(stdio):
        os.dup2(fd if fd >= 0 else null, target)
    for fd in [int(entry) for entry in os.listdir("/proc/self/fd")]:
        if fd > 2:
            try:  # noqa: SIM105 - the folder's own is gone already
                os.close(fd)
            except OSError:
                pass
    pthread_sigmask(SIG_SETMASK, ())
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())
    gc.enable()


def run(request: "Start") -> int:
    """Runs the module of `python -m MODULE ARGUMENT…`; returns the exit code."""
    import runpy

    command = [os.fsdecode(word) for word in request.argv]
    sys.orig_argv = command
    sys.argv = command[1:2] + command[3:]
    code = 0
    try:
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = exit_code(end)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        finish(code)
        signal(SIGINT, SIG_DFL)
        os.kill(os.getpid(), SIGINT)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        code = 1
    return finish(code)


def exit_code(end: SystemExit) -> int:
    """As the interpreter takes it: none is 0, a text is told and is 1."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def finish(code: int) -> int:
    """Waits for threads, calls exit functions, flushes; the exit code after that."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            code = NOT_FLUSHED
    return code
