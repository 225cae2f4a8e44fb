"""What only prctl can do: a name, subreaping, no new rights."""

import ctypes
import os

_prctl = ctypes.CDLL(None, use_errno=True).prctl

_SET_NAME = 15
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38


def _call(option: int, value: object) -> None:
    if _prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def name(text: bytes) -> None:
    """Names this process in `ps` and /proc; at most 15 bytes count."""
    _call(_SET_NAME, ctypes.c_char_p(text))


def become_subreaper() -> None:
    """Orphans below this process become its children; not inherited by a fork."""
    _call(_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """From here on no exec gains rights by a setuid program; inherited, and for good."""
    _call(_SET_NO_NEW_PRIVS, 1)
