"""A program that grows nasty process trees: `zoo.py KIND[,KIND…] N MARKER [LIFE_S]`; says `up` when they stand.

Every tree is bounded, and every process of it ends by itself after LIFE_S seconds. All carry MARKER in their command
line, which neither a cleared environment nor a lost parent takes away: a scan for it is the ground truth.
"""

import os
import signal
import sys
import time

LIFE_S = 25.0


def nap(until):
    """Lives until then."""
    while time.time() < until:
        time.sleep(0.05)
    os._exit(0)


def plain(n, until, _):
    """Children that wait."""
    for _ in range(n):
        if os.fork() == 0:
            nap(until)


def daemon(n, until, _):
    """Double forks in sessions of their own, with their stdio closed."""
    for _ in range(n):
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            for fd in range(3):
                os.close(fd)
            nap(until)


def envless(n, until, marker):
    """Daemons that cleared their environment by an exec."""
    for _ in range(n):
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            os.execve("/bin/sleep", [f"sleep-{marker}", str(max(1, int(until - time.time())))], {})


def ignorer(n, until, _):
    """Children that ignore what can be ignored."""
    for _ in range(n):
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)
            nap(until)


def stopped(n, until, _):
    """Children that stopped themselves; a wake-up lets them end in time, as their parent dies."""
    for _ in range(n):
        if os.fork() == 0:
            keeper = os.getpid()
            if os.fork() == 0:
                time.sleep(max(0, until - time.time()))
                os.kill(keeper, signal.SIGCONT)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGSTOP)
            nap(until)


def chain(n, until, _):
    """Each the child of the one before."""
    for _ in range(n):
        if os.fork():
            nap(until)
    os.write(1, b"up\n")
    nap(until)


def bomb(n, until, _):
    """Breeders with sessions of their own: about N alive at a time, at most 400 forks each."""
    for _ in range(max(1, n // 10)):
        if os.fork() == 0:
            os.setsid()
            forks = 0
            alive = set()
            while time.time() < until and forks < 400:
                if len(alive) < 9:
                    pid = os.fork()
                    forks += 1
                    if pid == 0:
                        os.setsid()
                        time.sleep(0.02)
                        os._exit(0)
                    alive.add(pid)
                ended, _ = os.waitpid(-1, os.WNOHANG)
                alive.discard(ended)
            nap(until)


def comet(n, until, _):
    """Each forks one and exits: always a new pid, at most 2,000 of them."""
    for _ in range(n):
        if os.fork() == 0:
            for _ in range(2000):
                if time.time() > until:
                    break
                if os.fork():
                    os._exit(0)
                os.setsid()
            nap(until)


def subreaper(n, until, marker):
    """A subreaper of its own, with daemons that come up to it."""
    import ctypes

    if os.fork() == 0:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        daemon(n, until, marker)
        nap(until)


def thread(n, until, _):
    """Children forked by a thread that is not the main one."""
    import threading

    def fork():
        for _ in range(n):
            if os.fork() == 0:
                nap(until)
        forked.set()
        time.sleep(max(0, until - time.time()))

    forked = threading.Event()
    threading.Thread(target=fork, daemon=True).start()
    forked.wait()


KINDS = {
    grow.__name__: grow for grow in (plain, daemon, envless, ignorer, stopped, chain, bomb, comet, subreaper, thread)
}


def main(arguments):
    """Grows what was asked for and waits."""
    until = time.time() + (float(arguments[3]) if len(arguments) > 3 else LIFE_S)
    me = os.getpid()
    for kind in arguments[0].split(","):
        KINDS[kind](int(arguments[1]), until, arguments[2])
        if os.getpid() != me:
            nap(until)
    os.write(1, b"up\n")
    nap(until)


main(sys.argv[1:])
