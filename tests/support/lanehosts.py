"""Real lane hosts in processes of their own, with fake-engine workers, and a module's side of them.

async with server(tmp_path) as nats, lanehost(tmp_path, nats.url), module(tmp_path, nats.url) as mine:
    key = mine.know()
    (lane,) = await mine.idle()
    vectors = await mine.embed(lane, key, [7, 8])

`mine.lanes` are the BusLanes; the module serves its artifacts from a cache, as a real one does.
"""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakemesh.artifacts import Cache
from bakemesh.bus import Bus
from bakemesh.bus.verbs import Serving
from bakemesh.protocol import subjects
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.inference.answers import Chunk
from bakemesh.protocol.inference.requests import Artifact as Asked
from bakemesh.synapse.lanes.base import LaneFailed, Lanes, LaneView
from bakemesh.synapse.lanes.bus import BusLanes
from bakemesh.workerpool import Artifact, Call, ModelKey, Share, Vectors
from support.nats import connect
from support.startup import RunningStartup, startup
from support.waiting import eventually
from support.workerpools import ids

CONTENT = b"any file"


@asynccontextmanager
async def lanehost(
    folder: Path, url: str, node_id: str = "gamma", *flags: str, workers: int = 1, wait: bool = True
) -> AsyncIterator[RunningStartup]:
    """One that is ready; its log is shown where the test fails inside."""
    given = ("--engine=fake", f"--workers={workers}", *flags)
    async with startup(folder, url, node_id, None, *given, program="bakemesh.lanes", wait=wait) as running:
        yield running


@dataclass
class Module:
    """What a module has of lanes. `served`: pieces of artifacts that were given away."""

    bus: Bus
    lanes: BusLanes
    cache: Cache
    folder: Path
    serving: Serving  # of pieces of artifacts
    served: list[Asked] = field(default_factory=list)
    tamper: Any = None  # what is done to a piece before it goes

    def artifact(self, content: bytes = CONTENT) -> Artifact:
        """A model's file in the cache."""
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        source = self.folder / f"model-{digest[7:15]}"
        source.write_bytes(content)
        return Artifact(path=self.cache.take(source, digest, link=False), digest=digest, format="fake")

    def know(self, content: bytes = CONTENT, **config: str) -> ModelKey:
        """That model with these switches of the fake engine, as the lanes know it."""
        return self.lanes.know(self.artifact(content), config, len(content))

    def view(self, lane: str) -> LaneView:
        """One lane as it is now."""
        return next(each for each in self.lanes.views() if each.name == lane)

    async def idle(self, number: int = 1) -> list[str]:
        """The names of so many idle lanes, once there are."""

        def found() -> list[str]:
            return sorted(each.name for each in self.lanes.views() if each.idle)

        return list(
            await eventually(lambda: found() if len(found()) >= number else None, what=f"{number} idle lanes")
        )

    async def serve(self, asked: Delivery) -> Chunk:
        """A piece of an artifact, as a real module gives it."""
        wanted = asked.received.message
        assert isinstance(wanted, Asked)
        self.served.append(wanted)
        path = self.cache.path(wanted.digest)
        assert path is not None
        whole = path.read_bytes()
        length = min(wanted.length, self.bus.max_payload // 2)
        data = whole[wanted.offset : wanted.offset + length]
        if self.tamper is not None:
            data = self.tamper(data)
        return Chunk(request=asked.received.id, offset=wanted.offset, data=data, total=len(whole))


async def embed(lanes: Lanes, lane: str, key: ModelKey, *items: Sequence[int], **call: Any) -> Vectors:
    """One caller's items; raises its LaneFailed."""
    share = Share([len(item) for item in items], ids(*(token for item in items for token in item)))
    (found,) = await lanes.embed_batch(lane, key, [share], "mean", False, Call(**call))
    if isinstance(found, LaneFailed):
        raise found
    return found


def numbers(vectors: Vectors) -> list[float]:
    """All rows in one list."""
    return array("f", bytes(vectors.data)).tolist()


@asynccontextmanager
async def module(
    folder: Path, url: str, node_id: str = "alpha", *, name: str = "synapse", **settings: Any
) -> AsyncIterator[Module]:
    """The lanes of a module that listens; `settings` are those of the connection."""
    async with connect(url, name=name, node_id=node_id, **settings) as bus, served(bus, folder) as made:
        yield made


@asynccontextmanager
async def served(bus: Bus, folder: Path, only: Sequence[str] = ()) -> AsyncIterator[Module]:
    """The same over a connection that is there."""
    own = folder / f"module-{bus.settings.node_id}-{bus.settings.party}"
    own.mkdir(exist_ok=True)
    pattern = subjects.pattern(bus.mesh, Asked.TYPE, node_id=bus.settings.node_id)
    serving = await bus.serve(pattern, lambda asked: made.serve(asked))
    made = Module(bus, BusLanes(bus, only), Cache(own / "cache"), own, serving)
    await made.lanes.start()
    try:
        yield made
    finally:
        await made.lanes.close()
        with contextlib.suppress(Exception):
            await made.serving.stop()
