"""A disk that can be full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A file system of its own, of `size`, at `path`."""
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill_disk(disk: Path) -> Path:
    """Leaves no room; removing the file that is given makes some."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as filling:
        try:
            while True:
                filling.write(b"\0" * 65536)
        except OSError:
            pass
    return ballast
