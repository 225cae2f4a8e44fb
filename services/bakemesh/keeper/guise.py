"""What `ps` and /proc show of a process that was forked and not executed: the command line and the
environment that it would have by exec.

The kernel reads command line and environment from where it put them at the exec. A nursery is started with
more of both than it needs (`Room`), and its forks write their own there, in place. What the room cannot take
is not shown: variables from the end on (who marks processes puts the mark first), then the end of the command
line. Behind a shorter command line empty arguments are seen.
"""

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ARG_START, ARG_END, ENV_START, ENV_END = range(45, 49)  # in `/proc/<pid>/stat`, from the state on
LEAST_ARGUMENTS, LEAST_ENVIRONMENT = 4096, 4096


class Room:
    """Where this process's command line and environment are, and its forks'; `numbers` are its `tree.stat`.
    Raises OSError where it is too little, or not told."""

    def __init__(self, numbers: list[bytes]) -> None:
        self.arguments = int(numbers[ARG_START]), int(numbers[ARG_END])
        self.environment = int(numbers[ENV_START]), int(numbers[ENV_END])
        for (start, end), least in (
            (self.arguments, LEAST_ARGUMENTS),
            (self.environment, LEAST_ENVIRONMENT),
        ):
            if not start or end - start < least:
                raise OSError(28, f"{end - start} bytes of room for forks to show who they are, not {least}")

    def show(self, argv: list[bytes], env: dict[bytes, bytes]) -> None:
        """Shows these from now on. No variable of the present environment may be in use by C any more."""
        write(self.environment, (key + b"=" + value for key, value in env.items()))
        write(self.arguments, argv)


def write(room: tuple[int, int], texts: "Iterable[bytes]") -> None:
    """Each with a NUL behind it, as far as there is room; zeros behind them."""
    start, end = room
    ctypes.memmove(start, block(texts, end - start), end - start)


def block(texts: "Iterable[bytes]", size: int) -> bytes:
    """As many of the texts as fit, whole, in `size` bytes; the first is cut where it alone does not. Pure."""
    taken = b""
    for text in texts:
        if len(taken) + len(text) + 1 > size:
            taken = taken or text[: size - 1] + b"\0"
            break
        taken += text + b"\0"
    return taken.ljust(size, b"\0")
