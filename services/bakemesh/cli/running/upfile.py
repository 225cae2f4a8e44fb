"""One `up` a state folder: a lock; `up.json`, where its bus is, for other verbs on this machine; and the
PsySpec that it was started with, as it was then."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from bakemesh.cli.exits import Exit, Stopped
from bakemesh.settings.load import UP_FILE


@contextlib.contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Holds the state folder's lock. Raises Stopped (exit 6) where another `up` holds it."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(state / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Stopped(
                Exit.TAKEN,
                f"a `bakemesh up` runs on {state} already; stop it, or name another folder (--state)",
            ) from None
        yield
    finally:
        os.close(handle)


def given(state: Path, psyspec: str) -> Path:
    """Keeps the PsySpec's text beside the Startup Supervisor's journal: a file that is edited while `up` runs
    changes nothing, also where the Startup Supervisor is started again."""
    folder = state / "startup"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "given.xml"
    temporary = path.with_suffix(".new")
    with open(
        os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(psyspec)
    os.replace(temporary, path)
    return path


@contextlib.contextmanager
def announced(state: Path, nats: str) -> Iterator[None]:
    """Writes where the bus is while the block runs; verbs on the same state folder then need no --nats."""
    path = state / UP_FILE
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"nats": nats, "pid": os.getpid()}) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
