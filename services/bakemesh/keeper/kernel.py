"""What Python has no call for, or only in modules that cost the keeper's start."""

import ctypes
import os

_library = ctypes.CDLL(None, use_errno=True)
_prctl = _library.prctl
_fallocate = _library.fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

_SET_NAME = 15
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38
_RLIMIT_LOCKS = 10  # without effect since Linux 2.4.25
_KEEP_SIZE, _COLLAPSE_RANGE = 1, 8


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


def mark(number: int) -> bool:
    """Marks this process and all below it by a limit that has no effect: neither exec nor `env -i` takes it
    away, and who has no rights cannot. False where the limit was lowered before, by an outer mark.
    """
    return bool(_library.setrlimit(_RLIMIT_LOCKS, (ctypes.c_ulong * 2)(number, number)) == 0)


def _allocate(fd: int, mode: int, offset: int, length: int) -> None:
    if _fallocate(fd, mode, offset, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"fallocate {mode}: {os.strerror(number)}")


def cut_front(fd: int, length: int) -> None:
    """Takes the first `length` bytes, a multiple of the block size, out of a file that others append to.
    Raises OSError where the file system cannot do it.
    """
    _allocate(fd, _COLLAPSE_RANGE, 0, length)


def reserve(fd: int, offset: int, length: int) -> None:
    """Sets room aside beyond a file's end. Raises OSError, ENOSPC where there is none."""
    _allocate(fd, _KEEP_SIZE, offset, length)
