"""Pools of real worker processes for tests: our worker with its fake engine, and the stranger's by script."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from array import array
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from bakemesh.workerpool import Artifact, Loaded, Pool, Settings, Share
from bakemesh.workerpool.settings import OUR_WORKER

FAKE = (*OUR_WORKER, "--engine", "fake")
SCRIPTED = Path(__file__).with_name("scripted_worker.py")
# A busy machine starts a worker slowly; what a test is about is never this.
PATIENT: dict[str, Any] = {"handshake_s": 60.0, "start_s": 90.0}


def scripted(behaviour: str) -> tuple[str, ...]:
    """The command of the stranger's worker."""
    return (sys.executable, "-I", "-S", str(SCRIPTED), behaviour)


def ids(*tokens: int) -> bytes:
    """Token ids as they are on the wire."""
    return array("i", tokens).tobytes()


def share(*items: Sequence[int]) -> Share:
    """Items as one caller's share."""
    return Share([len(item) for item in items], ids(*(token for item in items for token in item)))


def floats(data: memoryview) -> list[float]:
    """f32 LE as numbers."""
    return array("f", bytes(data)).tolist()


def gguf(path: Path) -> Artifact:
    """A GGUF file under its right digest."""
    return Artifact(path=path, digest="sha256:" + hashlib.sha256(path.read_bytes()).hexdigest())


class World:
    """A folder with a model file, and a pool over it."""

    def __init__(self, folder: Path, pool: Pool, artifact: Artifact) -> None:
        self.folder, self.pool, self.artifact = folder, pool, artifact
        self.pids: set[int] = set()

    async def load(self, **config: str) -> Loaded:
        """The model with these switches."""
        return await self.pool.load(self.artifact, config)

    def pid(self, number: int = 0) -> int:
        """Of a lane's worker, which is up."""
        found = self.pool.health().lanes[number].pid
        assert found is not None
        return found


@contextlib.asynccontextmanager
async def pools(
    folder: Path, command: tuple[str, ...] = FAKE, *, start: bool = True, **settings: Any
) -> AsyncIterator[World]:
    """A pool that is closed at the end, whatever happened."""
    file = folder / "model"
    file.write_bytes(b"any file")
    digest = "sha256:" + hashlib.sha256(b"any file").hexdigest()
    pool = Pool(Settings(runtime_dir=folder / "run", command=command, **{**PATIENT, **settings}))
    if start:
        await pool.start()
    try:
        yield World(folder, pool, Artifact(path=file, digest=digest, format="fake"))
    finally:
        if start:
            await pool.close()


def named(word: str) -> list[int]:
    """Processes, not dead, with `word` on their command line."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if word.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                    found.append(int(entry))
    return found
