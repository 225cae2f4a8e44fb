"""Grows nasty process trees: `zoo.py KIND[,KIND…] N MARKER [LIFE_S]`; says `up` when they stand.

Every tree is bounded, and every process of it ends by itself after LIFE_S seconds. All carry MARKER in their
command line, which neither a cleared environment nor a lost parent takes away: a scan for it is the ground
truth.
"""

import os
import signal
import sys
import time

LIFE_S = 25.0
STANDING, STANDS = os.pipe()  # one byte from each process that has become what it is to be


def stands():
    """This process is what it is to be."""
    os.write(STANDS, b".")


def nap(until):
    """Lives until then."""
    while time.time() < until:
        time.sleep(0.05)
    os._exit(0)


def plain(n, until, _):
    """Children that wait."""
    for _ in range(n):
        if os.fork() == 0:
            stands()
            nap(until)
    return n


def detach():
    """A double fork into a session of its own: True in the daemon."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    return True


def daemon(n, until, _):
    """Daemons with their stdio closed."""
    for _ in range(n):
        if detach():
            for fd in range(3):
                os.close(fd)
            stands()
            nap(until)
    return n


def envless(n, until, marker):
    """Daemons that cleared their environment by an exec."""
    for _ in range(n):
        if detach():
            stands()
            os.execve("/bin/sleep", [f"sleep-{marker}", str(max(1, int(until - time.time())))], {})
    return n


def ignorer(n, until, _):
    """Children that ignore what can be ignored."""
    for _ in range(n):
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)
            stands()
            nap(until)
    return n


def stopped(n, until, _):
    """Children that stopped themselves, each with one of its own that wakes it when its time is over."""
    for _ in range(n):
        if os.fork() == 0:
            sleeper = os.getpid()
            if os.fork() == 0:
                stands()
                time.sleep(max(0, until - time.time()))
                os.kill(sleeper, signal.SIGCONT)
                os._exit(0)
            stands()
            os.kill(sleeper, signal.SIGSTOP)
            nap(until)
    return 2 * n


def chain(n, until, _):
    """Each the child of the one before."""
    if os.fork() == 0:
        for _ in range(n - 1):
            stands()
            if os.fork():
                nap(until)
        stands()
        nap(until)
    return n


def bomb(n, until, _):
    """Breeders with sessions of their own: about N alive at a time, at most 400 forks each."""
    breeders = max(1, n // 10)
    for _ in range(breeders):
        if os.fork() == 0:
            os.setsid()
            stands()
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
    return breeders


def comet(n, until, _):
    """Each forks one and exits: always a new pid, at most 2,000 of them."""
    for _ in range(n):
        if os.fork() == 0:
            stands()
            for _ in range(2000):
                if time.time() > until:
                    break
                if os.fork():
                    os._exit(0)
                os.setsid()
            nap(until)
    return n


def subreaper(n, until, marker):
    """A subreaper of its own, with daemons that come up to it."""
    import ctypes

    if os.fork() == 0:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        stands()
        daemon(n, until, marker)
        nap(until)
    return n + 1


def thread(n, until, _):
    """Children forked by a thread that is not the main one and lives on."""
    import threading

    def fork():
        for _ in range(n):
            if os.fork() == 0:
                stands()
                nap(until)
        time.sleep(max(0, until - time.time()))

    threading.Thread(target=fork, daemon=True).start()
    return n


KINDS = {
    grow.__name__: grow
    for grow in (plain, daemon, envless, ignorer, stopped, chain, bomb, comet, subreaper, thread)
}


def main(arguments):
    """Grows what was asked for and waits."""
    until = time.time() + (float(arguments[3]) if len(arguments) > 3 else LIFE_S)
    standing = sum(KINDS[kind](int(arguments[1]), until, arguments[2]) for kind in arguments[0].split(","))
    while standing > 0:
        standing -= len(os.read(STANDING, standing))
    os.write(1, b"up\n")
    nap(until)


main(sys.argv[1:])
