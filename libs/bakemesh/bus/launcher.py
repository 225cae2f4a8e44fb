"""Starts a program that dies with its parent: asks the kernel for that, then becomes the program.

Run by path, `python -I -S launcher.py <parent pid> <program> [argument …]`; standard library only. A
`preexec_fn` would fork the whole starting process, which is dear in a large one. Where the kernel cannot do
it (not Linux) the program is started all the same.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Becomes the program. Exits 1 where the parent has died in between."""
    parent, *argv = sys.argv[1:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != int(parent):
            sys.exit(1)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
