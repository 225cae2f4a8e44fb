"""Lanes that tell of each request: a span below its caller's, and how many ended in a crash.

Only put around others where telemetry is on. A batch of several callers is below the first one's span and
linked to those of all. Left out: what is measured of runs that gave a result (`measuring`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager

from bakemesh.synapse.lanes.base import LaneFailed, Lanes, LaneView
from bakemesh.synapse.lanes.failing import died
from bakemesh.telemetry import Span, SpanKind, Telemetry
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.models import Artifact, ModelKey, Sampling, Share, Text, Token, Vectors


class TracedLanes:
    """See `Lanes`; all of it is done by `lanes`."""

    def __init__(self, lanes: Lanes, telemetry: Telemetry) -> None:
        self._lanes, self._telemetry = lanes, telemetry

    async def start(self) -> None:
        """See Lanes."""
        await self._lanes.start()

    async def close(self, grace_s: float = 0.0) -> None:
        """See Lanes."""
        await self._lanes.close(grace_s)

    def views(self) -> Sequence[LaneView]:
        """See Lanes."""
        return self._lanes.views()

    def watch(self, changed: Callable[[], None]) -> None:
        """See Lanes."""
        self._lanes.watch(changed)

    def know(self, artifact: Artifact, config: Mapping[str, str], size: int) -> ModelKey:
        """See Lanes."""
        return self._lanes.know(artifact, config, size)

    async def load(self, lane: str, key: ModelKey, call: Call) -> None:
        """See Lanes."""
        with self._told("load", lane, key, call):
            await self._lanes.load(lane, key, call)

    async def unload(self, lane: str, key: ModelKey, call: Call) -> None:
        """See Lanes."""
        with self._told("unload", lane, key, call):
            await self._lanes.unload(lane, key, call)

    async def embed_batch(
        self, lane: str, key: ModelKey, shares: Sequence[Share], pooling: str, normalize: bool, call: Call
    ) -> list[Vectors | LaneFailed]:
        """See Lanes."""
        with self._told("embed", lane, key, call) as span:
            span.note(
                {"synapse.callers": len(shares), "synapse.items": sum(len(each.counts) for each in shares)}
            )
            found = await self._lanes.embed_batch(lane, key, shares, pooling, normalize, call)
            for each in found:
                if isinstance(each, LaneFailed):
                    self._failed(span, "embed", each)
            return found

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
        with self._told("rerank", lane, key, call) as span:
            span.note({"synapse.items": len(counts)})
            return await self._lanes.rerank(lane, key, query_tokens, counts, ids, call)

    async def generate(
        self, lane: str, key: ModelKey, ids: bytes | memoryview, max_tokens: int, call: Call
    ) -> Text:
        """See Lanes."""
        with self._told("generate", lane, key, call) as span:
            found = await self._lanes.generate(lane, key, ids, max_tokens, call)
            _note(span, found)
            return found

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
        with self._told("generate", lane, key, call) as span:
            stream = self._lanes.generate_stream(lane, key, ids, max_tokens, sampling, call)
            async with aclosing(stream):  # type: ignore[type-var]
                async for each in stream:
                    if isinstance(each, Text):
                        _note(span, each)
                    yield each

    async def probe(self, key: ModelKey, call: Call) -> bool:
        """See Lanes."""
        with self._told("probe", "", key, call):
            return await self._lanes.probe(key, call)

    @contextmanager
    def _told(self, verb: str, lane: str, key: ModelKey, call: Call) -> Iterator[Span]:
        first, *others = call.traces or (None,)
        span = self._telemetry.span(
            f"lane {verb}",
            SpanKind.CLIENT,
            parent=first,
            links=[each for each in others if each is not None],
            attributes={"synapse.lane": lane, "synapse.model": key.id},
        )
        if (own := span.traceparent) is not None:
            call.traces = (own,)  # what is asked of another process is below this span
        problem: str | None = None
        try:
            yield span
        except LaneFailed as failed:
            self._failed(span, verb, failed)
            problem = str(failed)
            raise
        finally:
            span.end(problem)

    def _failed(self, span: Span, verb: str, failed: LaneFailed) -> None:
        span.note({"synapse.error": failed.error.code})
        if died(failed):
            self._telemetry.count("synapse.lane.crashes", 1, {"verb": verb})


def _note(span: Span, text: Text) -> None:
    span.note({"synapse.prompt": text.n_prompt, "synapse.generated": text.n_gen})
