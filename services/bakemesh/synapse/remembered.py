"""Which files the parameters' models were made of, so that a start reads only what has changed.

A file is taken for the same where its path, size, inode and time of change are, and so is what was asked of
it. Kept in the module's folder; one that cannot be read remembers nothing. Left out: proving content (the
cache goes by digests; a worker verifies what it loads).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.finding import find

FILE: Final = "ingested.json"


def mark(path: Path, weights: str, config: Mapping[str, str]) -> dict[str, Any] | None:
    """What the model at `path` is known by; None where it cannot be looked at."""
    try:
        found = find(path)
        files = [each.absolute() for each in (found.model, found.tokenizer) if each is not None]
        seen = []
        for file in files:
            state = file.stat()
            seen.append([os.fspath(file), state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns])
    except (OSError, ModelRefused):
        return None
    return {"files": seen, "weights": weights, "config": dict(config)}


class Remembered:
    """The marks by alias, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._marks: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._file.read_bytes())
            if isinstance(found, dict):
                self._marks = found

    def same(self, alias: str, now: Mapping[str, Any] | None) -> bool:
        """Whether the alias was made of just that."""
        return now is not None and self._marks.get(alias) == now

    def put(self, alias: str, now: Mapping[str, Any] | None) -> None:
        """It is, from now on. Raises OSError."""
        self._marks = {**self._marks, alias: now}
        beside = self._file.with_name(f".{FILE}.new")
        beside.write_text(json.dumps(self._marks, ensure_ascii=False), encoding="utf-8")
        beside.replace(self._file)
