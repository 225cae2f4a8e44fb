"""A core over lanes of this process: real workers with the fake engine."""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bakemesh.synapse.lanes.local import LocalLanes
from bakemesh.synapse.scheduling.core import Core
from bakemesh.synapse.scheduling.settings import Settings
from bakemesh.worker.engines.fake import score, vector
from bakemesh.workerpool import Artifact, ModelKey
from bakemesh.workerpool import Settings as PoolSettings
from support.waiting import eventually
from support.workerpools import FAKE, PATIENT


class LocalCore:
    """A folder with a model file, lanes and a core over them."""

    def __init__(self, folder: Path, lanes: LocalLanes, core: Core) -> None:
        self.folder, self.lanes, self.core = folder, lanes, core

    def know(self, name: str = "model", **config: str) -> ModelKey:
        """A model with these switches of the fake engine."""
        file = self.folder / name
        file.write_bytes(name.encode())
        digest = "sha256:" + hashlib.sha256(name.encode()).hexdigest()
        artifact = Artifact(path=file, digest=digest, format="fake")
        manifest = SimpleNamespace(bytes=file.stat().st_size, min_placement_share=None)
        return self.core.know(SimpleNamespace(artifact=artifact, config=config, manifest=manifest))

    def pids(self) -> list[int]:
        """Of the workers that are up."""
        return [lane.pid for lane in self.lanes.pool.health().lanes if lane.pid is not None]

    @property
    def starts(self) -> int:
        """Of workers, so far."""
        return sum(lane.starts for lane in self.lanes.pool.health().lanes)

    async def all_up(self, workers: int) -> None:
        """Returns when they are."""
        await eventually(lambda: self.core.status().lanes == workers, within=60, what="all lanes up")


@contextlib.asynccontextmanager
async def local_core(
    folder: Path, *, workers: int = 2, settings: Settings | None = None, **pool: Any
) -> AsyncIterator[LocalCore]:
    """It, closed at the end whatever happened."""
    given = {**PATIENT, "workers": workers, **pool}
    lanes = LocalLanes(PoolSettings(runtime_dir=folder / "run", command=FAKE, **given), "n")
    await lanes.start()
    core = Core(lanes, settings)
    made = LocalCore(folder, lanes, core)
    try:
        await made.all_up(workers)
        yield made
    finally:
        await core.close()
        await lanes.close()


def fake_vectors(items: Sequence[Sequence[int]], pooling: str = "mean") -> list[list[float]]:
    """What the fake engine makes of items."""
    return [array("f", vector(memoryview(array("i", item)), pooling, True, 8)).tolist() for item in items]


def fake_scores(query: Sequence[int], items: Sequence[Sequence[int]]) -> list[float]:
    """The same, of candidates."""
    asked = memoryview(array("i", query))
    return array("f", [score(asked, memoryview(array("i", item))) for item in items]).tolist()
