"""Lanes of several kinds as one: those of this process, and those on the bus.

Guarantees: those of `Lanes`; a request goes to the kind that has its lane. Left out: which lane is better.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.synapse.lanes.base import LaneFailed, Lanes, LaneView
from bakemesh.workerpool import Artifact, Call, ModelKey, Sampling, Share, Text, Token, Vectors


class SeveralLanes:
    """See `Lanes`."""

    def __init__(self, *kinds: Lanes) -> None:
        self._kinds = kinds
        self._of: dict[str, Lanes] = {}

    async def start(self) -> None:
        """See Lanes."""
        await asyncio.gather(*(each.start() for each in self._kinds))

    async def close(self, grace_s: float = 0.0) -> None:
        """See Lanes."""
        await asyncio.gather(*(each.close(grace_s) for each in self._kinds))

    def views(self) -> Sequence[LaneView]:
        """See Lanes."""
        views = list[LaneView]()
        for kind in self._kinds:
            views += kind.views()
        return views

    def watch(self, changed: Callable[[], None]) -> None:
        """See Lanes."""
        for each in self._kinds:
            each.watch(changed)

    def know(self, artifact: Artifact, config: Mapping[str, str], size: int) -> ModelKey:
        """See Lanes: the same key for all kinds."""
        first, *others = self._kinds
        for each in others:
            each.know(artifact, config, size)
        return first.know(artifact, config, size)

    async def load(self, lane: str, key: ModelKey, call: Call) -> None:
        """See Lanes."""
        await self._kind(lane).load(lane, key, call)

    async def unload(self, lane: str, key: ModelKey, call: Call) -> None:
        """See Lanes."""
        await self._kind(lane).unload(lane, key, call)

    async def embed_batch(
        self, lane: str, key: ModelKey, shares: Sequence[Share], pooling: str, normalize: bool, call: Call
    ) -> list[Vectors | LaneFailed]:
        """See Lanes."""
        return await self._kind(lane).embed_batch(lane, key, shares, pooling, normalize, call)

    async def rerank(
        self,
        lane: str,
        key: ModelKey,
        query_tokens: int,
        counts: Sequence[int],
        ids: bytes | memoryview,
        call: Call,
    ) -> memoryview:
        """See Lanes."""
        return await self._kind(lane).rerank(lane, key, query_tokens, counts, ids, call)

    async def generate(
        self, lane: str, key: ModelKey, ids: bytes | memoryview, max_tokens: int, call: Call
    ) -> Text:
        """See Lanes."""
        return await self._kind(lane).generate(lane, key, ids, max_tokens, call)

    def generate_stream(
        self,
        lane: str,
        key: ModelKey,
        ids: bytes | memoryview,
        max_tokens: int,
        sampling: Sampling,
        call: Call,
    ) -> AsyncIterator[Token | Text]:
        """See Lanes."""
        return self._kind(lane).generate_stream(lane, key, ids, max_tokens, sampling, call)

    async def probe(self, key: ModelKey, call: Call) -> bool:
        """See Lanes. One kind after the other: a call is of one request at a time."""
        passed = True
        for each in self._kinds:
            passed &= await each.probe(key, call)
        return passed

    def _kind(self, lane: str) -> Lanes:
        found = self._of.get(lane)
        if found is None:
            self._of = {view.name: kind for kind in self._kinds for view in kind.views()}
            found = self._of.get(lane)
        if found is None:
            raise LaneFailed(error_of(Code.LANE_BUSY, f"there is no lane {lane}"), begun=False)
        return found
