"""Lanes on the bus: those that lane hosts of this and other nodes offer. Source: inference-v1.md, section 7.

Guarantees: those of `Lanes`. A lane is known by its Status, and forgotten when that is silent for SILENT_S; a
request there is given up with it, or when its host was started anew (`module_restarted`, it may be run once
more); a late answer is dropped. Nothing is cut: a request that the server does not take is `bad_request`,
with both sizes. Left out: deadlines of work, crash budgets and quarantines, which are the lane host's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from bakemesh.bus import Bus
from bakemesh.bus.events import Disconnected, Event
from bakemesh.bus.verbs import Subscription
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.inference import lanes as m
from bakemesh.protocol.inference.answers import Answer
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.subjects import WORKER_STATUS, pattern
from bakemesh.synapse.lanes.base import LaneFailed, LaneView
from bakemesh.synapse.lanes.flight import Flight
from bakemesh.synapse.lanes.roster import Roster
from bakemesh.synapse.lanes.rows import per_share
from bakemesh.workerpool import Artifact, Call, ModelKey, Sampling, Share, Text, Token, Vectors, key_of

WITHIN_S: Final = 900.0  # a caller that names no deadline
BEAT_S: Final = 2.0  # between two Status of an idle lane
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Model:
    """What every request about a model says of it."""

    digest: str
    format: str
    config: dict[str, str]
    size: int
    artifactnode: str


class BusLanes:
    """See `Lanes`. `only`: NodeIDs, or names of lanes (`<NodeID>/<lane>`); empty: all that are heard of."""

    def __init__(self, bus: Bus, only: Collection[str] = ()) -> None:
        self._bus = bus
        self._own = bus.settings.node_id
        self._roster = Roster(only)
        self._models: dict[ModelKey, dict[str, Any]] = {}
        self._flights: dict[str, Flight] = {}
        self._loop = asyncio.get_running_loop()
        self._watchers: list[Callable[[], None]] = []
        self._told = False
        self._views: list[LaneView] = []
        self._seen = float("-inf")
        self._news = asyncio.Event()
        self._heard: Subscription | None = None
        self._off: Callable[[], None] = lambda: None
        self._looking: asyncio.TimerHandle | None = None
        self._closed = False

    # -- life

    async def start(self) -> None:
        """Listens; returns with the first lane, or when every lane had the time to be heard. Raises
        AccessDenied, NotConnected, BusClosed."""
        self._off = self._bus.on_event(self._on_event)
        self._heard = await self._bus.subscribe(pattern(self._bus.mesh, WORKER_STATUS), self._on_status)
        self._look()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BEAT_S):
                while not len(self._roster):
                    self._news.clear()
                    await self._news.wait()

    async def close(self, grace_s: float = 0.0) -> None:
        """See Lanes; the lanes themselves are others'. Idempotent."""
        self._closed = True
        if self._flights and grace_s > 0:
            waits = [asyncio.ensure_future(each.settled()) for each in self._flights.values()]
            await asyncio.wait(waits, timeout=grace_s)
            for wait in waits:
                wait.cancel()
        for flight in list(self._flights.values()):
            flight.abandon("the module is ending")
        if self._looking is not None:
            self._looking.cancel()
        self._off()
        heard, self._heard = self._heard, None
        if heard is not None:
            await heard.stop()

    def _look(self) -> None:
        """Forgets who is silent."""
        self._looking = self._loop.call_later(_LOOK_S, self._look)
        for name in self._roster.silent(self._loop.time()):
            self._gave_up(name, "its Status has been silent")
            self._stale()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Disconnected):
            self._roster.unheard()
            self._stale()

    def _on_status(self, delivery: Delivery) -> None:
        status, where = delivery.received.message, delivery.subject
        if not isinstance(status, m.LaneStatus) or (where.node_id, where.key) != (
            status.node_id,
            status.lane,
        ):
            return
        lost = self._roster.hear(status, where.party, self._loop.time())
        if lost is not None:
            self._gave_up(f"{status.node_id}/{status.lane}", lost)
        self._stale()

    def _gave_up(self, name: str, why: str) -> None:
        if (flight := self._flights.get(name)) is not None:
            flight.lost(why)

    # -- what there is

    def views(self) -> Sequence[LaneView]:
        """See Lanes."""
        now = self._loop.time()
        if now - self._seen > _LOOK_S:
            self._views = [each.view(now, self._own) for each in self._roster]
            self._seen = now
        return self._views

    def watch(self, changed: Callable[[], None]) -> None:
        """See Lanes."""
        self._watchers.append(changed)

    def _stale(self) -> None:
        self._seen = float("-inf")
        self._news.set()
        if not self._told:
            self._told = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._told = False
        if not self._closed:
            for changed in self._watchers:
                changed()

    # -- what can be asked

    def know(self, artifact: Artifact, config: Mapping[str, str], size: int) -> ModelKey:
        """See Lanes. Raises ValueError for an artifact without a digest: nobody else could find it."""
        if not artifact.digest:
            raise ValueError(f"{artifact.path}: lanes on the bus know a model by its digest; it has none")
        key = key_of(artifact, config)
        told = _Model(f"sha256:{key.digest}", key.format, dict(key.config), size, self._own)
        self._models[key] = asdict(told)
        return key

    async def load(self, lane: str, key: ModelKey, call: Call) -> None:
        """See Lanes."""
        await self._ask(lane, key, m.LoadModel, m.LaneLoaded, call)

    async def unload(self, lane: str, key: ModelKey, call: Call) -> None:
        """See Lanes."""
        await self._ask(lane, key, m.LaneUnload, m.LaneUnloaded, call)
        self._roster.has(lane, key, loaded=False)
        self._stale()

    async def embed_batch(
        self, lane: str, key: ModelKey, shares: Sequence[Share], pooling: str, normalize: bool, call: Call
    ) -> list[Vectors | LaneFailed]:
        """See Lanes."""
        items = [len(share.counts) for share in shares]
        said = {
            "counts": [count for share in shares for count in share.counts],
            "shares": items if len(shares) > 1 else None,
            "pooling": pooling,
            "normalize": normalize,
            "data": bytes(shares[0].ids) if len(shares) == 1 else b"".join(share.ids for share in shares),
        }
        found = await self._ask(lane, key, m.EmbedBatch, m.LaneVectors, call, said)
        return per_share(found, items, lane)

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
        said = {"query_n_tokens": query_tokens, "counts": list(counts), "data": bytes(ids)}
        found = await self._ask(lane, key, m.LaneRerank, m.LaneScores, call, said)
        if len(found.data) != 4 * len(counts):
            reason = f"lane {lane} gave {len(found.data)} bytes of scores for {len(counts)} candidates"
            raise LaneFailed(error_of(Code.INFERENCE_FAILED, reason))
        return memoryview(found.data)

    async def generate(
        self, lane: str, key: ModelKey, ids: bytes | memoryview, max_tokens: int, call: Call
    ) -> Text:
        """See Lanes."""
        said = {"max_tokens": max_tokens, "data": bytes(ids)}
        return _text(await self._ask(lane, key, m.LaneGenerate, m.LaneText, call, said))

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
        options = {**asdict(sampling), "stop": list(sampling.stop) or None}
        said = {"max_tokens": max_tokens, "data": bytes(ids), **options}
        flight, until = self._flight(lane, key, m.LaneGenerateStream, m.LaneText, call, said)
        try:
            await flight.send(until)
            while (token := await flight.token()) is not None:
                yield token
            yield _text(await flight.answer())
        finally:
            self._landed(flight, key)

    async def probe(self, key: ModelKey, call: Call) -> bool:
        """See Lanes. One lane of each host that refuses it; it waits where all of a host's are occupied."""
        until = call.until(self._loop.time(), WITHIN_S)
        hosts = {each.host for each in self._roster if key in each.refused}
        passed = True
        for host in sorted(hosts):
            passed &= await self._probe(host, key, call, until)
        return passed

    async def _probe(self, host: tuple[str, str], key: ModelKey, call: Call, until: float) -> bool:
        while True:
            self._news.clear()
            for name in [each.name for each in self._roster if each.host == host]:
                try:
                    found = await self._ask(name, key, m.LaneProbe, m.LaneProbed, call)
                except LaneFailed as error:
                    if error.error.code != Code.LANE_BUSY:
                        raise
                    continue
                if found.state == "ok":
                    self._roster.free(host, key)
                    self._stale()
                return bool(found.state == "ok")
            if not any(each.host == host for each in self._roster):
                return True  # it is gone, and its quarantine with it
            try:
                async with asyncio.timeout_at(until):
                    await self._news.wait()
            except TimeoutError:
                said = f"every lane of node {host[0]} was occupied for as long as the probe would wait"
                raise LaneFailed(error_of(Code.LANE_BUSY, said), begun=False) from None

    # -- one request

    async def _ask(
        self,
        lane: str,
        key: ModelKey,
        type_: type[m.OfModel],
        wanted: type[Answer],
        call: Call,
        said: Mapping[str, Any] | None = None,
    ) -> Any:
        flight, until = self._flight(lane, key, type_, wanted, call, said or {})
        try:
            await flight.send(until)
            return await flight.answer()
        finally:
            self._landed(flight, key)

    def _flight(
        self,
        lane: str,
        key: ModelKey,
        type_: type[m.OfModel],
        wanted: type[Answer],
        call: Call,
        said: Mapping[str, Any],
    ) -> tuple[Flight, float]:
        """The request, to be sent and landed, and until when it is waited for. Raises LaneFailed."""
        model, now = self._models.get(key), self._loop.time()
        if model is None:
            raise _refused(Code.MODEL_UNKNOWN, f"model {key.id} is not known here")
        known = self._roster.get(lane)
        if self._closed or known is None:
            why = "the module is ending" if self._closed else "nothing was heard of it lately"
            raise _refused(Code.LANE_BUSY, f"lane {lane} was not asked: {why}")
        if known.since is not None:
            raise _refused(Code.LANE_BUSY, f"lane {lane} has a request of this module already")
        until = call.until(now, WITHIN_S)
        left_ms = int((until - now) * 1000)
        if left_ms < 1:
            raise _refused(Code.DEADLINE_EXCEEDED, f"the caller's time was over before lane {lane} was asked")
        request = type_(**model, deadlinems=left_ms, attempt=min(call.attempt, 1), **said)
        flight = Flight(self._bus, lane, request, wanted, call)
        self._flights[lane] = flight
        self._roster.sent(lane, now)
        self._stale()
        return flight, until

    def _landed(self, flight: Flight, key: ModelKey) -> None:
        """It is over, whichever way: what that tells of its lane."""
        flight.close()
        if self._flights.get(flight.lane) is flight:
            del self._flights[flight.lane]
        state, loaded = flight.tells()
        if state is None:
            self._roster.forget(flight.lane)
        else:
            self._roster.ended(flight.lane, state)
        if loaded:
            self._roster.has(flight.lane, key, loaded=True)
        self._stale()


def _refused(code: Code, message: str) -> LaneFailed:
    return LaneFailed(error_of(code, message), begun=False)


def _text(found: m.LaneText) -> Text:
    return Text(found.text, found.n_prompt, found.n_gen, found.finish_reason)
