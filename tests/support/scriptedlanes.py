"""Lanes that work by arithmetic in (virtual) time: what a core does with lanes, without processes.

A vector tells its item: the sum of its ids, their number, the first and the last. Every promise that a core
makes to lanes is checked: one thing at a time, nothing for a lane that is down or not idle, 256 items at
most, no run of a model that is not loaded. What goes wrong is `mishap`'s to say: it is asked before each
step.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.worker.headers import ADDED_TYPES
from bakemesh.synapse.lanes.base import LaneFailed, LaneView
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.models import Artifact, ModelKey, Sampling, Share, Text, Token, Vectors, key_of

DIMS = 4
CRASH, BUSY, HANG, ERR = "crash", "busy", "hang", "err"


@dataclass
class Step:
    """Something that a lane did. `items`: the sum of each item's ids, share by share."""

    stage: str
    lane: str
    model: ModelKey
    began: float
    ended: float | None = None
    tokens: int = 0
    items: list[list[int]] = field(default_factory=list)
    attempt: int = 0
    outcome: str = ""


@dataclass
class _Lane:
    name: str
    local: bool = True
    up: bool = True
    busy: bool = False
    degraded: bool = False
    loaded: set[ModelKey] = field(default_factory=set)
    refused: set[ModelKey] = field(default_factory=set)
    types: tuple[str, ...] = tuple(ADDED_TYPES)


class ScriptedLanes:
    """See the module. Seconds: `overhead_s` a step, `token_s` a token, `load_s` a LOAD, `down_s` after a
    crash."""

    def __init__(
        self,
        count: int = 1,
        *,
        overhead_s: float = 0.001,
        token_s: float = 0.0002,
        load_s: float = 0.1,
        down_s: float = 0.2,
        mishap: Callable[[Step], str | None] = lambda step: None,
    ) -> None:
        self.lanes = {f"l{number}": _Lane(f"l{number}") for number in range(count)}
        self.overhead_s, self.token_s, self.load_s, self.down_s = overhead_s, token_s, load_s, down_s
        self.mishap = mishap
        self.steps: list[Step] = []
        self._changed: list[Callable[[], None]] = []
        self._known: set[ModelKey] = set()

    # -- the interface

    async def start(self) -> None:
        """They are up."""

    async def close(self, grace_s: float = 0.0) -> None:
        """Nothing is left."""

    def views(self) -> Sequence[LaneView]:
        """See Lanes."""
        return [
            LaneView(
                each.name,
                "n",
                each.local,
                each.up,
                each.up and not each.busy,
                frozenset(each.loaded),
                frozenset(each.refused),
                each.types,
                each.degraded,
            )
            for each in self.lanes.values()
        ]

    def watch(self, changed: Callable[[], None]) -> None:
        """See Lanes."""
        self._changed.append(changed)

    def know(self, artifact: Artifact, config: Mapping[str, str], size: int) -> ModelKey:
        """See Lanes."""
        key = key_of(artifact, config)
        self._known.add(key)
        return key

    async def load(self, lane: str, key: ModelKey, call: Call) -> None:
        """See Lanes."""
        loading = [step for step in self.steps if step.stage == "load" and step.ended is None]
        assert all(step.model != key for step in loading), "two LOADs of a model at a time"
        await self._step(Step("load", lane, key, self._now()), self.load_s)
        self.lanes[lane].loaded.add(key)
        self.changed()

    async def unload(self, lane: str, key: ModelKey, call: Call) -> None:
        """See Lanes."""
        await self._step(Step("unload", lane, key, self._now()), 0.001)
        self.lanes[lane].loaded.discard(key)
        self.changed()

    async def embed_batch(
        self, lane: str, key: ModelKey, shares: Sequence[Share], pooling: str, normalize: bool, call: Call
    ) -> list[Vectors | LaneFailed]:
        """See Lanes."""
        assert 1 <= sum(len(share.counts) for share in shares) <= 256
        items = [list(split(share.counts, share.ids)) for share in shares]
        tokens = sum(sum(share.counts) for share in shares)
        step = Step("embed", lane, key, self._now(), tokens=tokens, attempt=call.attempt)
        step.items = [[sum(each) for each in share] for share in items]
        await self._step(step, self.overhead_s + tokens * self.token_s)
        return [
            Vectors(
                len(each),
                DIMS,
                memoryview(array("f", [value for item in each for value in vector(item)])).cast("B"),
            )
            for each in items
        ]

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
        assert 1 <= len(counts) <= 256
        query, *candidates = split([query_tokens, *counts], ids)
        tokens = sum(counts) + len(counts) * query_tokens
        step = Step("rerank", lane, key, self._now(), tokens=tokens, attempt=call.attempt)
        await self._step(step, self.overhead_s + tokens * self.token_s)
        return memoryview(array("f", [sum(query) + sum(each) for each in candidates])).cast("B")

    async def generate(
        self, lane: str, key: ModelKey, ids: bytes | memoryview, max_tokens: int, call: Call
    ) -> Text:
        """See Lanes."""
        stream = self.generate_stream(lane, key, ids, max_tokens, Sampling(), call)
        (text,) = [part async for part in stream if isinstance(part, Text)]
        return text

    async def generate_stream(
        self,
        lane: str,
        key: ModelKey,
        ids: bytes | memoryview,
        max_tokens: int,
        sampling: Sampling,
        call: Call,
    ) -> AsyncIterator[Token | Text]:
        """The prompt's ids one after the other, as the fake engine."""
        (prompt,) = split([len(ids) // 4], ids)
        step = Step("generate", lane, key, self._now(), tokens=len(prompt), attempt=call.attempt)
        stopped: list[bool] = []
        stop = lambda: stopped.append(True)  # noqa: E731
        call.bind(stop)
        said: list[str] = []
        self._begin(step)
        try:
            await asyncio.sleep(self.overhead_s + len(prompt) * self.token_s)
            if self.mishap(step) is not None:
                self._crash(step)
            for index, each in enumerate(prompt[:max_tokens]):
                await asyncio.sleep(self.token_s)
                if stopped:
                    break
                said.append(f"{each} ")
                yield Token(index, said[-1])
                step.stage = "token"
                if self.mishap(step) is not None:
                    self._crash(step)
        finally:
            step.stage = "generate"
            self._end(step)
        yield Text("".join(said), len(prompt), len(said), "cancelled" if stopped else "stop")

    async def probe(self, key: ModelKey, call: Call) -> bool:
        """See Lanes."""
        for lane in self.lanes.values():
            lane.refused.discard(key)
        self.changed()
        return True

    # -- what tests do with it

    def changed(self) -> None:
        """Something in `views` did."""
        for changed in self._changed:
            changed()

    def put(self, lane: str, **values: Any) -> None:
        """A lane is otherwise from now on."""
        for name, value in values.items():
            setattr(self.lanes[lane], name, value)
        self.changed()

    def runs(self, *stages: str) -> list[Step]:
        """What was done, in order."""
        return [step for step in self.steps if step.stage in (stages or ("embed", "rerank", "generate"))]

    # -- a step

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _begin(self, step: Step) -> None:
        lane = self.lanes[step.lane]
        if lane.busy:
            raise AssertionError(f"{step} for a lane that is busy")
        if not lane.up:
            raise LaneFailed(error_of(Code.LANE_BUSY, "it is down"), begun=False)
        if step.stage not in ("load", "unload"):
            assert step.model in lane.loaded, f"{step} of a model that is not loaded"
        assert step.model in self._known
        lane.busy = True
        self.steps.append(step)
        self.changed()

    def _end(self, step: Step) -> None:
        step.ended = self._now()
        self.lanes[step.lane].busy = False
        self.changed()

    async def _step(self, step: Step, took_s: float) -> None:
        self._begin(step)
        try:
            step.outcome = self.mishap(step) or ""
            if step.outcome == BUSY:
                raise LaneFailed(error_of(Code.LANE_BUSY, "somebody else's work runs"), begun=False)
            if step.outcome == ERR:
                raise LaneFailed(error_of(Code.INFERENCE_FAILED, "as it was told"))
            if step.outcome == CRASH:
                await asyncio.sleep(took_s / 2)
                self._crash(step)
            await asyncio.sleep(took_s)
            if step.outcome == HANG:
                await asyncio.sleep(60)
                self._crash(step, crashed=False)
        finally:
            self._end(step)

    def _crash(self, step: Step, *, crashed: bool = True) -> None:
        lane = self.lanes[step.lane]
        lane.loaded = set()
        step.outcome = CRASH
        if self.down_s:
            lane.up = False
            asyncio.get_running_loop().call_later(self.down_s, lambda: self.put(lane.name, up=True))
        raise LaneFailed(error_of(Code.ENGINE_CRASHED, "as it was told", stage=step.stage), crashed=crashed)


def split(counts: Sequence[int], ids: bytes | memoryview) -> list[list[int]]:
    """Items of ids."""
    every, found, at = array("i", bytes(ids)), [], 0
    assert len(every) == sum(counts), f"{len(every)} ids for {sum(counts)} tokens"
    for count in counts:
        found.append(every[at : at + count].tolist())
        at += count
    return found


def vector(item: Sequence[int]) -> list[float]:
    """What an item's vector is."""
    return [float(sum(item)), float(len(item)), float(item[0]), float(item[-1])]


def packed(items: Sequence[Sequence[int]]) -> tuple[list[int], bytes]:
    """Items as counts and ids."""
    return [len(item) for item in items], array("i", [each for item in items for each in item]).tobytes()


def model(name: str = "m", size: int = 1000) -> Any:
    """A model as the library would have it."""
    artifact = Artifact(path=Path("/nowhere") / name, digest=f"sha256:{name}", format="fake")
    return SimpleNamespace(
        artifact=artifact, config={}, manifest=SimpleNamespace(bytes=size, min_placement_share=None)
    )
