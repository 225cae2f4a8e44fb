"""Lanes of this process: a pool of engine workers beside the module, one hop less than on the bus.

Guarantees: those of `Lanes`; a request is asked for in the caller's turn of the loop, without a task of its
own. Left out: redispatch, which is the module's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.synapse.lanes.base import LaneFailed, LaneView
from bakemesh.synapse.lanes.failing import of_pool
from bakemesh.workerpool import (
    Artifact,
    Call,
    ModelKey,
    Pool,
    Sampling,
    Settings,
    Share,
    Text,
    Token,
    Turns,
    Vectors,
    WorkerPoolError,
)
from bakemesh.workerpool.health import LaneHealth, LaneState
from bakemesh.workerpool.lane import Lane

_VIEW_S = 0.25  # the age of a stamp is as old as this at the most
_STATES = {LaneState.PINGING: "idle", LaneState.BACKOFF: "crashed"}


class LocalLanes:
    """See `Lanes`. `node_id` is the node's own; lanes are called `<NodeID>/w0` and so on."""

    def __init__(self, settings: Settings, node_id: str) -> None:
        self.pool = Pool(replace(settings, redispatch=False))
        self._node_id = node_id
        self._turns = Turns(self.pool)
        self._loop = asyncio.get_running_loop()
        self._watchers: list[Callable[[], None]] = []
        self._views: list[LaneView] | None = None
        self._kept: dict[tuple[str, LaneState, bool, bool], LaneView] = {}
        self._kept_of = -1  # the pool's version that they show
        self._looked = float("-inf")
        self.pool.watch(self._stale)

    async def start(self) -> None:
        """See Lanes. Raises EngineCrashed where no worker comes up, RuntimeDirRefused."""
        await self.pool.start()

    async def close(self, grace_s: float = 0.0) -> None:
        """See Lanes."""
        self._turns.close()
        await self.pool.close(grace_s)

    # -- what there is

    def views(self) -> Sequence[LaneView]:
        """See Lanes."""
        now = self._loop.time()
        if self._kept_of != self.pool.version or now - self._looked > _VIEW_S:
            self._kept.clear()
            self._kept_of, self._looked, self._views = self.pool.version, now, None
        views = self._views
        if views is None:
            views = self._views = [self._view(lane, now) for lane in self.pool.lanes]
        return views

    def watch(self, changed: Callable[[], None]) -> None:
        """See Lanes."""
        self._watchers.append(changed)

    def _stale(self) -> None:
        self._views = None
        for changed in self._watchers:
            changed()

    def _view(self, lane: Lane, now: float) -> LaneView:
        """A lane becomes busy and idle with each request, and the rest of its view changes seldom: views that
        were made are kept, by what a lane does, until anything else is another thing."""
        at = (lane.name, lane.state, lane.up, self._turns.free(lane))
        found = self._kept.get(at)
        if found is None:
            found = self._kept[at] = self._made(lane, now, up=at[2], idle=at[3])
        return found

    def _made(self, lane: Lane, now: float, *, up: bool, idle: bool) -> LaneView:
        health = lane.health(now)
        ledger = self.pool.ledger
        return LaneView(
            name=f"{self._node_id}/{lane.name}",
            node_id=self._node_id,
            local=True,
            up=up,
            idle=idle,
            loaded=frozenset(lane.refs),
            refused=frozenset(key for key in self.pool.known() if ledger.refused_for(key, now) is not None),
            types=health.types,
            degraded=ledger.degraded(now),
            rss_mb=health.rss_mb,
            placement_share=health.placement_share,
            stamp_age_s=health.pong_age_s,
            state=self._state(health),
            engine=health.engine,
            problem=health.last_crash,
        )

    def _state(self, health: LaneHealth) -> str:
        state = _STATES.get(health.state, str(health.state))
        return "busy" if state == "idle" and self._turns.since(health.name) is not None else state

    # -- what can be asked

    def know(self, artifact: Artifact, config: Mapping[str, str], size: int) -> ModelKey:
        """See Lanes."""
        del size  # a worker looks for itself
        return self.pool.know(artifact, config)

    async def load(self, lane: str, key: ModelKey, call: Call) -> None:
        """See Lanes."""
        with self._turn(lane, call):
            artifact = self.pool.artifact(key)
            if artifact is None:
                raise LaneFailed(
                    error_of(Code.MODEL_UNKNOWN, f"model {key.id} is not known here"), begun=False
                )
            await self.pool.load(artifact, dict(key.config), call)

    async def unload(self, lane: str, key: ModelKey, call: Call) -> None:
        """See Lanes."""
        with self._turn(lane, call):
            await self.pool.unload(key, call)

    async def embed_batch(
        self, lane: str, key: ModelKey, shares: Sequence[Share], pooling: str, normalize: bool, call: Call
    ) -> list[Vectors | LaneFailed]:
        """See Lanes."""
        with self._turn(lane, call):
            if len(shares) == 1:  # no batch of several callers: nothing to find out, and no task
                try:
                    return [
                        await self.pool.embed(key, shares[0], pooling=pooling, normalize=normalize, call=call)
                    ]
                except WorkerPoolError as error:
                    return [of_pool(error)]
            found = await self.pool.embed_batch(key, shares, pooling=pooling, normalize=normalize, call=call)
            return [of_pool(each) if isinstance(each, WorkerPoolError) else each for each in found]

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
        with self._turn(lane, call):
            return await self.pool.rerank(key, query_tokens, counts, ids, call=call)

    async def generate(
        self, lane: str, key: ModelKey, ids: bytes | memoryview, max_tokens: int, call: Call
    ) -> Text:
        """See Lanes."""
        with self._turn(lane, call):
            return await self.pool.generate(key, ids, max_tokens, call=call)

    async def generate_stream(
        self,
        lane: str,
        key: ModelKey,
        ids: bytes | memoryview,
        max_tokens: int,
        sampling: Sampling,
        call: Call,
    ) -> AsyncIterator[Token | Text]:
        """See Lanes."""
        seen = False
        with self._turn(lane, call):
            stream = self.pool.generate_stream(key, ids, max_tokens, sampling, call=call)
            async with contextlib.aclosing(stream):  # type: ignore[type-var]
                try:
                    async for each in stream:
                        yield each
                        seen = True
                except WorkerPoolError as error:
                    raise of_pool(error, seen=seen) from error

    async def probe(self, key: ModelKey, call: Call) -> bool:
        """See Lanes. It waits for its worker as a queued request does."""
        try:
            return await self.pool.probe(key, call)
        except WorkerPoolError as error:
            raise of_pool(error) from error

    def _turn(self, lane: str, call: Call) -> _Turn:
        node_id, _, name = lane.partition("/")
        if node_id != self._node_id:
            raise LaneFailed(error_of(Code.BAD_REQUEST, f"{lane!r} is no lane of this process"), begun=False)
        return _Turn(self._turns, name, self._loop.time(), call)


class _Turn:
    """A lane's turn, for as long as it is entered; the pool's errors leave it as LaneFailed. No generator:
    every request goes through here."""

    __slots__ = ("_call", "_name", "_now", "_turns")

    def __init__(self, turns: Turns, name: str, now: float, call: Call) -> None:
        self._turns, self._name, self._now, self._call = turns, name, now, call

    def __enter__(self) -> None:
        try:
            self._turns.take(self._name, self._now, self._call)
        except WorkerPoolError as error:
            raise of_pool(error) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._turns.give_back(self._name)
        if isinstance(error, WorkerPoolError):
            raise of_pool(error) from error
