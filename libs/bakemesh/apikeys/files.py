"""A key file on disk: read, and changed as a whole.

Guarantees: a file that is not only its owner's is not read; a changed one is there whole, with rights 0600,
or as it was before; two who change it at once do so one after the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from bakemesh.apikeys.document import ApiKey, KeyFileRefused, made, new_secret, read, written
from bakemesh.hotkeys.files import NotPrivate, private_text

LARGEST = 4 << 20


def load(path: Path) -> tuple[ApiKey, ...]:
    """The keys of the file; none where there is no file. Raises KeyFileRefused."""
    where = f"key file {path}"
    try:
        text = private_text(path, LARGEST, "a line of JSON a key")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise KeyFileRefused(f"{where}: {error.strerror}") from None
    except NotPrivate as error:
        raise KeyFileRefused(f"{where}: {error}") from None
    return read(text, where)


def add(path: Path, name: str, now: datetime) -> str:
    """Makes a new key and gives its secret, which is kept nowhere. Raises KeyFileRefused: the name is taken,
    or the file cannot be changed.
    """
    secret = new_secret()
    with _alone(path):
        keys = load(path)
        if any(key.name == name for key in keys):
            raise KeyFileRefused(
                f"key file {path}: {name!r} is there already; give another name, or revoke it"
            )
        _write(path, (*keys, made(name, secret, now)))
    return secret


def revoke(path: Path, name: str) -> None:
    """Takes a key out. Raises KeyFileRefused where there is none of this name."""
    with _alone(path):
        keys = load(path)
        left = tuple(key for key in keys if key.name != name)
        if len(left) == len(keys):
            there = ", ".join(key.name for key in keys) or "none"
            raise KeyFileRefused(f"key file {path}: no key {name!r}; there are: {there}")
        _write(path, left)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """The folder is locked meanwhile: the file itself is replaced by another."""
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
        handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise KeyFileRefused(
            f"key file {path}: {error.strerror}; give one in a folder that is there"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(path: Path, keys: Iterable[ApiKey]) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(written(keys))
                file.flush()
                os.fsync(handle)
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise KeyFileRefused(
            f"key file {path}: {error.strerror}; give one in a folder that can be written"
        ) from None
