"""Exit codes of every verb, and the one exception a verb raises to end with one of them."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What an exit code means."""

    DONE = 0
    FAILED = 1  # the bake or request failed
    USAGE = 2  # usage, spec or input error
    CANCELLED = 3
    INTEGRITY = 4
    UNREACHABLE = 5  # bus unreachable, or no Builder on that node
    TAKEN = 6  # the node has a Builder already
    DOWN = 7  # `bakemesh builder`: the node was asked down; `up` ends with DONE then
    INTERRUPTED = 130  # interrupted before anything was sent


class Stopped(Exception):
    """Raised when a verb ends with an error: `code` for the shell, text for stderr (what, where, what to
    do).
    """

    def __init__(self, code: Exit, text: str, *more: str) -> None:
        super().__init__(text)
        self.code = code
        self.lines = (text, *more)


def usage(text: str, *more: str) -> Stopped:
    """A usage, spec or input error."""
    return Stopped(Exit.USAGE, text, *more)
