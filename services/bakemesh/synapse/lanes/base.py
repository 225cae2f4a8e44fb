"""The interface between the module and its lanes.

A lane does one request at a time. Whoever dispatches picks an idle lane by `views`, gives it one request, and
is told of every change by `watch`. Guaranteed by every kind of lanes: a request ends as its result or as one
LaneFailed, whatever dies, and within `call`'s time; an occupied lane refuses at once (`lane_busy`); nothing
is repeated here (the module repeats). Left out: which lane, when, and what is merged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bakemesh.protocol.inference.errors import ErrorObject
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.models import Artifact, ModelKey, Sampling, Share, Text, Token, Vectors


class LaneFailed(Exception):
    """Raised when a lane has no result; `error` is what the caller may be told. `crashed`: a worker died
    under it (it may be run once more, elsewhere); `begun`: a worker may have seen it."""

    def __init__(self, error: ErrorObject, *, crashed: bool = False, begun: bool = True) -> None:
        super().__init__(str(error))
        self.error, self.crashed, self.begun = error, crashed, begun


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane as it is now. `name` is unique among all lanes (`<NodeID>/<lane>` on the bus); `up`: its worker
    lives; `idle`: it would take a request; `loaded`: what its worker holds; `refused`: what is quarantined
    there; `types`: what it can beyond version 1 (GENERATE_STREAM, …);
    `placement_share`: of its work on its accelerator, None where it does not say."""

    name: str
    node_id: str
    local: bool
    up: bool
    idle: bool
    loaded: frozenset[ModelKey] = frozenset()
    refused: frozenset[ModelKey] = frozenset()
    types: tuple[str, ...] = ()
    degraded: bool = False
    rss_mb: float | None = None
    placement_share: float | None = None
    stamp_age_s: float | None = None
    state: str = "idle"
    engine: str | None = None
    problem: str | None = None


class Lanes(Protocol):
    """Some lanes. All calls raise LaneFailed."""

    async def start(self) -> None:
        """Brings them up; returns when they can be looked at."""

    async def close(self, grace_s: float = 0.0) -> None:
        """Ends all of this process's own; what runs ends as `module_restarted` after `grace_s`."""

    def views(self) -> Sequence[LaneView]:
        """Every lane that is known. What was given is not changed later: the same object says the same."""

    def watch(self, changed: Callable[[], None]) -> None:
        """`changed` is called after anything in `views` changed; several may watch."""

    def know(self, artifact: Artifact, config: Mapping[str, str], size: int) -> ModelKey:
        """Registers a model, so that any lane may load it when it needs it. The same one again: nothing."""

    async def load(self, lane: str, key: ModelKey, call: Call) -> None:
        """Has it loaded there."""

    async def unload(self, lane: str, key: ModelKey, call: Call) -> None:
        """Gives its memory back there."""

    async def embed_batch(
        self, lane: str, key: ModelKey, shares: Sequence[Share], pooling: str, normalize: bool, call: Call
    ) -> list[Vectors | LaneFailed]:
        """Of each share its vectors, or why there are none. Up to 256 items."""

    async def rerank(
        self,
        lane: str,
        key: ModelKey,
        query_tokens: int,
        counts: Sequence[int],
        ids: bytes | memoryview,
        call: Call,
    ) -> memoryview:
        """One f32 a candidate. Up to 256 candidates."""

    async def generate(
        self, lane: str, key: ModelKey, ids: bytes | memoryview, max_tokens: int, call: Call
    ) -> Text:
        """Greedy and free."""

    def generate_stream(
        self,
        lane: str,
        key: ModelKey,
        ids: bytes | memoryview,
        max_tokens: int,
        sampling: Sampling,
        call: Call,
    ) -> AsyncIterator[Token | Text]:
        """Token by token, and its Text at last. Closing it, or `call.cancel()`, cancels."""

    async def probe(self, key: ModelKey, call: Call) -> bool:
        """Tries a quarantined model wherever it is; whether it is free everywhere now."""
