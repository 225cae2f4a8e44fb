"""Paths that a recipe names: they start in the bake's folder and stay there, unless they are absolute.

Guarantees: a relative path never leaves the folder, neither by `..` nor by a symbolic link that a step made;
a file appears whole or not at all, in place of a link instead of behind it. Messages name the path as the
recipe wrote it: what a reference put in may be pushed data, which no Status may carry.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


class PathRefused(Exception):
    """Raised when a path cannot be used: it leaves the bake's folder, names no file, or is refused."""

    def __init__(self, written: str, reason: str) -> None:
        super().__init__(f"path {written[:100]!r}: {reason}")
        self.written, self.reason = written, reason


def inside(folder: Path, path: str, *, written: str) -> Path:
    """The real path of `path`, which starts in `folder` unless it is absolute. Raises PathRefused.

    `written` is the same as it stands in the recipe.
    """
    if "\0" in path:
        raise PathRefused(written, "holds a NUL byte")
    try:
        if os.path.isabs(path):
            return Path(path)
        root = folder.resolve()
        real = (root / path).resolve()
    except (OSError, RuntimeError) as error:
        raise PathRefused(written, reason_of(error)) from error
    if not real.is_relative_to(root):
        raise PathRefused(written, "leaves the bake's folder; a path outside it must be absolute")
    return real


def working_folder(folder: Path, path: str | None, *, written: str | None) -> Path:
    """Where a process starts: `path`, made where it is relative and absent. Raises PathRefused."""
    found = inside(folder, path or ".", written=written or ".")
    try:
        if path is None or not os.path.isabs(path):
            found.mkdir(parents=True, exist_ok=True)
        elif not found.is_dir():
            reason = "is no folder" if found.exists() else "does not exist"
            raise PathRefused(written or ".", f"{reason}; an absolute folder is never made")
    except OSError as error:
        raise PathRefused(written or ".", reason_of(error)) from error
    return found


def place(folder: Path, path: str, data: bytes, *, written: str) -> None:
    """Writes `data` to `path`, whole or not at all. Blocks: run it in a thread. Raises PathRefused."""
    above, name = os.path.split(path)
    if name in ("", ".", ".."):
        raise PathRefused(written, "names no file")
    parent = inside(folder, above or ".", written=written)
    target, draft = parent / name, parent / f".{secrets.token_hex(8)}.part"
    try:
        if not os.path.isabs(path):
            parent.mkdir(parents=True, exist_ok=True)
        _write(draft, data)
        try:
            os.replace(draft, target)  # a link there is replaced, not followed
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        raise PathRefused(written, reason_of(error)) from error


def _write(draft: Path, data: bytes) -> None:
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(fd, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def reason_of(error: Exception) -> str:
    """The system's words for an error, without the path (which may hold an expanded reference)."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return "is a loop of symbolic links" if isinstance(error, RuntimeError) else "cannot be a path"
