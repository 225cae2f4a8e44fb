"""The guard: ends what `up` started when `up` is gone, by kill -9 too. Run by path, standard library only.

It reads lines on stdin: `watch PID GRACE` after a start, `forget PID` after an end, `done` before an ordered
end of `up`. End of input means that `up` is gone: what is still watched is ended in reverse order (TERM,
grace, KILL), then whatever carries the token in its environment is killed, which catches a process that was
started and not yet reported; where `up` did not say `done`, the command of the arguments is run at last. It
is in a session of its own, so that Ctrl-C on the terminal does not reach it. Left out: anything to do while
`up` lives.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

TOKEN = "_BAKEMESH_UP"
GRACE_S = 5.0


def main(token: str, last: list[str]) -> None:
    """Watches until stdin ends, then ends what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # pid → pidfd (a pid that is used again is another process), grace
    watched: dict[int, tuple[int, float]] = {}
    done = False
    for line in sys.stdin:
        word, *values = line.split()
        if word == "done":
            done = True
            continue
        pid = int(values[0])
        if word == "watch":
            try:
                watched[pid] = os.pidfd_open(pid), float(values[1])
            except ProcessLookupError:
                continue
        elif word == "forget" and (found := watched.pop(pid, None)) is not None:
            os.close(found[0])
    for fd, grace_s in reversed(watched.values()):
        end(fd, grace_s)
    while left := carrying(token):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
    if last and not done:
        subprocess.run(last, check=False)


def end(fd: int, grace_s: float) -> None:
    """TERM, grace, KILL, and waits until it is dead."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            signal.pidfd_send_signal(fd, kind)
        except ProcessLookupError:
            return
        if select.select([fd], [], [], grace_s)[0]:
            return


def carrying(token: str) -> list[int]:
    """Live processes with the token in their environment, this one aside."""
    mark = f"{TOKEN}={token}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environ = file.read().split(b"\0")
        except OSError:
            continue
        if mark in environ:  # a zombie's environment reads as empty
            found.append(int(name))
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
