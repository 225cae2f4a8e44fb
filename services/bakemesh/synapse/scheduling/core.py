"""The core: callers' requests in, lanes' results out, each request ended exactly once.

    core = Core(lanes)
    key = core.know(model)
    async for rows in core.embed(key, counts, ids, pooling="mean", normalize=True, ask=Ask(deadline=…)):
        …

A request is admitted or refused at once, waits in a line, runs in quanta on lanes, and ends as its result or
one Failed: at its caller's deadline at the latest, which kills no worker. What a crash took is run once more,
by itself and on another lane where there is one; a stream that has given a token is not. Everything happens
on events: a request, a result, a change of the lanes, a timer. Of one event loop; all decisions are in pure
modules beside this one. Left out: the lanes' own life (who starts and closes them), texts, the bus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.synapse.lanes.base import LaneFailed, Lanes
from bakemesh.synapse.scheduling import admission
from bakemesh.synapse.scheduling.admission import Room, Wish
from bakemesh.synapse.scheduling.asks import (
    BULK,
    CLASSES,
    INTERACTIVE,
    TAKEN_BACK,
    Ask,
    CoreStatus,
    Failed,
    Ran,
    Rows,
)
from bakemesh.synapse.scheduling.dispatch import STREAMS, Dispatch
from bakemesh.synapse.scheduling.lines import LineKey, Ticket
from bakemesh.synapse.scheduling.placement import Why
from bakemesh.synapse.scheduling.request import Request
from bakemesh.synapse.scheduling.settings import Settings
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.models import Artifact, ModelKey, Sampling, Text, Token

_ID: Final = 4  # bytes of one


class _Facts(Protocol):
    @property
    def bytes(self) -> int: ...

    @property
    def min_placement_share(self) -> float | None: ...


class Known(Protocol):
    """A model, as the library has it."""

    @property
    def artifact(self) -> Artifact:
        """Its file."""

    @property
    def config(self) -> Mapping[str, str]:
        """What its LOAD gets."""

    @property
    def manifest(self) -> _Facts:
        """Where its size is, and which lanes it wants."""


class Core:
    """See the module. `told` is called after each run that gave a result."""

    def __init__(
        self,
        lanes: Lanes,
        settings: Settings | None = None,
        clock: asyncio.AbstractEventLoop | None = None,
        *,
        told: Callable[[Ran], None] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._lanes = lanes
        self._clock = clock or asyncio.get_running_loop()
        self._requests: set[Request[Any]] = set()
        self._bytes = self._number = 0
        self._open = True
        self._idle = asyncio.Event()
        self._idle.set()
        self._dispatch = Dispatch(lanes, self.settings, self._clock, self._end, told)
        self._lines = self._dispatch.lines
        self._estimates = self._dispatch.estimates

    # -- what can be asked

    def know(self, model: Known) -> ModelKey:
        """Registers it; lanes load it when it is first asked for. The same one again: nothing."""
        size = model.manifest.bytes
        key = self._lanes.know(model.artifact, model.config, size)
        roster, least = self._dispatch.roster, model.manifest.min_placement_share
        roster.sizes[key] = size
        roster.least_shares.pop(key, None)
        if least is not None:
            roster.least_shares[key] = least
        return key

    def embed(
        self,
        model: ModelKey,
        counts: Sequence[int],
        ids: bytes | memoryview,
        *,
        pooling: str,
        normalize: bool,
        ask: Ask,
    ) -> Request[Rows]:
        """Vectors of items, in their order, as they get ready. `counts`: tokens of each; `ids`: all of them,
        i32 LE. Raises Failed, here or while it is iterated over."""
        tokens = sum(counts)
        _match(counts, tokens, ids)
        request: Request[Rows] = self._admit("embed", model, ask, len(counts), tokens, len(ids))
        request.counts, request.ids = counts, ids
        self._wait(request, LineKey(ask.work_class, "embed", model, pooling, normalize), tokens)
        return request

    async def rerank(
        self,
        model: ModelKey,
        query_ids: bytes | memoryview,
        counts: Sequence[int],
        ids: bytes | memoryview,
        ask: Ask,
    ) -> memoryview:
        """A raw score (f32 LE) of each candidate. Raises Failed."""
        extra = len(query_ids) // _ID
        _match(counts, sum(counts), ids)
        if extra < 1 or len(query_ids) % _ID:
            said = f"a query of {len(query_ids)} bytes; it needs one id of {_ID} bytes or more"
            raise Failed(error_of(Code.BAD_REQUEST, said))
        tokens = sum(counts) + extra * len(counts)
        request: Request[memoryview] = self._admit(
            "rerank", model, ask, len(counts), tokens, len(ids) + len(query_ids)
        )
        request.counts, request.ids, request.prefix, request.extra = counts, ids, query_ids, extra
        self._wait(request, LineKey(ask.work_class, "rerank", model), tokens)
        scores = [part async for part in request]
        return scores[0] if len(scores) == 1 else memoryview(b"".join(scores))

    def generate(
        self,
        model: ModelKey,
        ids: bytes | memoryview,
        max_tokens: int,
        sampling: Sampling | None,
        ask: Ask,
        *,
        session: bytes | None = None,
        stream: bool = True,
    ) -> Request[Token | Text]:
        """Tokens as they come, and the Text at last; without `stream` the Text alone. `sampling` None: greedy
        and free. `session`: among lanes that hold as much of the prompt, the one that served it last. Raises
        Failed, here or while it is iterated over."""
        prompt = len(ids) // _ID
        _match([prompt], prompt, ids)
        if max_tokens < 1:
            raise Failed(error_of(Code.BAD_REQUEST, f"max_tokens is {max_tokens}; it must be 1 or more"))
        request: Request[Token | Text] = self._admit(
            "generate", model, ask, 1, prompt + max_tokens, len(ids), prompt=prompt
        )
        request.counts, request.ids, request.prefix = (prompt + max_tokens,), ids, ids
        request.max_tokens, request.sampling, request.session = max_tokens, sampling, session
        request.stream = stream
        needs = None if sampling is None else STREAMS
        key = LineKey(ask.work_class, "generate", model, needs=needs)
        self._wait(request, key, prompt + max_tokens)
        return request

    async def probe(self, model: ModelKey, within_s: float = 300.0) -> bool:
        """Tries a quarantined model at once; whether it is free everywhere now. Raises Failed."""
        if not self._open:
            raise Failed(_GOING)
        try:
            return await self._lanes.probe(model, Call(within_s=within_s))
        except LaneFailed as failed:
            raise Failed(failed.error) from failed

    def status(self) -> CoreStatus:
        """The numbers of now; waits for nothing."""
        dispatch, now = self._dispatch, self._clock.time()
        dispatch.roster.refresh()
        up = [view for view in dispatch.roster.views if view.up]
        wait_s = self._starts_in(INTERACTIVE, 0, now) if up else self.settings.max_queue_s
        return CoreStatus(
            waitms=round(wait_s * 1000),
            rate=dispatch.overall.rate * len(up),
            backlog=sum(line.tokens for line in self._lines.all()) + dispatch.roster.tokens,
            queued=self._dispatch.queued,
            bytesinflight=self._bytes,
            lanes=len(up),
            busy=sum(not view.idle or view.name in dispatch.roster.busy for view in up),
            loaded=frozenset(model for view in up for model in view.loaded),
        )

    # -- its end

    async def drain(self, within_s: float) -> bool:
        """Takes nothing new; whether all that was there was answered in time."""
        self._open = False
        try:
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Takes nothing new, and ends what is there as `module_restarted`. Idempotent."""
        self._open = False
        for request in tuple(self._requests):
            self._end(request, _GOING)
        await self._dispatch.close()

    # -- a request's beginning and end

    def _admit(
        self, kind: str, model: ModelKey, ask: Ask, items: int, tokens: int, size: int, prompt: int = 0
    ) -> Request[Any]:
        if not self._open:
            raise Failed(_GOING)
        dispatch, now, limits = self._dispatch, self._clock.time(), self.settings
        known = dispatch.roster.sizes.get(model)
        if known is None:
            raise Failed(error_of(Code.MODEL_UNKNOWN, f"the core does not know model {model.id}"))
        if limits.memory_bytes is not None and known > limits.memory_bytes and dispatch.roster.all_local:
            said = f"the model has {known} bytes; {limits.memory_bytes} is the limit for all of them"
            raise Failed(error_of(Code.OOM, said))
        if ask.work_class not in CLASSES:
            said = f"class {ask.work_class!r}; there are {', '.join(CLASSES)}"
            raise Failed(error_of(Code.BAD_REQUEST, said))
        size = max(size, ask.size)
        work_s = (
            dispatch.estimates.work_s(model.id, "read", prompt, now)
            if kind == "generate"
            else dispatch.estimates.work_s(model.id, kind, tokens, now)
        )
        dispatch.roster.refresh()
        spread = min(items, -(-tokens // limits.quantum_tokens), dispatch.roster.up)
        wish = Wish(size, items, tokens, ask.deadline - now, work_s, spread)
        room = Room(self._bytes, self._starts_in(ask.work_class, ask.priority, now), self._drains_in(now))
        if (error := admission.refusal(limits, wish, room)) is not None:
            raise Failed(error)
        self._number += 1
        request: Request[Any] = Request(self._number, kind, model, ask, now, self._leave)
        request.size = size
        request.begin_by = now + limits.max_queue_s
        return request

    def _wait(self, request: Request[Any], key: LineKey, tokens: int) -> None:
        ask = request.ask
        self._requests.add(request)
        self._idle.clear()
        self._bytes += request.size
        self._dispatch.queued += 1
        if ask.attempt:
            key = key._replace(alone=request.number)
        ticket = Ticket(
            request,
            key,
            (-ask.priority, request.number),
            request.counts,
            request.extra,
            tokens,
            attempt=ask.attempt,
        )
        request.tickets.append(ticket)
        self._lines.push(ticket)
        request.timer = self._clock.call_at(min(request.begin_by, ask.deadline), self._due, request)
        ask.on_cancel(partial(self._cancel, request))
        self._dispatch.nudge()

    def _end(self, request: Request[Any], error: ErrorObject | None) -> None:
        """The one place where requests end."""
        if request.over:
            return
        for ticket in request.tickets:
            self._lines.drop(ticket)
        request.tickets.clear()
        if not request.begun:
            self._dispatch.queued -= 1
        self._bytes -= request.size
        self._requests.discard(request)
        call = request.call
        request.end(error)
        if call is not None:
            request.call = None
            call.cancel()
        if not self._requests:
            self._idle.set()

    def _leave(self, request: Request[Any]) -> None:
        self._end(request, TAKEN_BACK)

    def _cancel(self, request: Request[Any]) -> None:
        if request.call is not None and not request.over:
            request.call.cancel()  # its end comes from the lane, with the text so far
        else:
            self._end(request, TAKEN_BACK)

    def _due(self, request: Request[Any]) -> None:
        """Its caller's time is over, or it did not begin in time."""
        now, ask = self._clock.time(), request.ask
        waits = not request.begun
        why = self._dispatch.why(request) if waits else None
        if now >= ask.deadline:
            if why is Why.LOADING:
                self._end(request, error_of(Code.MODEL_LOADING, "the model was not in memory in time"))
            else:
                where = "before it began" if waits else "while it ran"
                self._end(request, error_of(Code.DEADLINE_EXCEEDED, f"the caller's time was over {where}"))
            return
        until = ask.deadline
        if waits:
            begin_by = request.begin_by
            if why is Why.LOADING:
                begin_by = request.arrived + self.settings.max_load_s
            if now >= begin_by:
                self._end(request, self._not_begun(why, now - request.arrived))
                return
            until = min(until, begin_by)
        request.timer = self._clock.call_at(until, self._due, request)

    def _not_begun(self, why: Why | None, waited_s: float) -> ErrorObject:
        if why is Why.LOADING:
            said = f"the model was not in memory after {waited_s:.3g} s"
            return error_of(Code.MODEL_LOADING, said, retry_after_ms=1000)
        if why is Why.NONE_UP:
            views = self._dispatch.roster.views
            problems = "; ".join(f"{view.name}: {view.problem}" for view in views if view.problem)
            said = f"no lane came up within {waited_s:.3g} s ({problems or 'they are starting'})"
            return error_of(Code.LANE_BUSY, said, retry_after_ms=1000)
        said = f"it did not begin within {waited_s:.3g} s"
        wait = max(0.01, self._starts_in(INTERACTIVE, 0, self._clock.time()))
        return error_of(Code.QUEUE_FULL, said, retry_after_ms=round(wait * 1000))

    # -- what is to be expected

    def _starts_in(self, work_class: str, priority: int, now: float) -> float:
        roster, work_s = self._dispatch.roster, self._estimates.work_s
        if not self._lines and roster.free:
            return 0.0  # what `admission.starts_in` would say: the usual case, said at once
        ahead, bulk, mine = 0.0, 0.0, _RANKS[work_class]
        for line in self._lines.all():
            key = line.key
            rank = _RANKS[key.work_class]
            if rank < mine:
                ahead += work_s(key.model.id, key.kind, line.tokens, now)
            elif rank == mine:
                ahead += work_s(key.model.id, key.kind, line.before(priority), now)
            elif work_class == INTERACTIVE:
                bulk += work_s(key.model.id, key.kind, line.tokens, now)
        if bulk:
            ahead = admission.ahead_of_interactive(ahead, bulk, self.settings.interactive_turns)
        return admission.starts_in(roster.left_s(now), ahead, roster.up, roster.free)

    def _drains_in(self, now: float) -> float:
        if self._bytes * 2 < self.settings.bytes_in_flight:
            return 0.0  # nobody is refused for bytes yet
        return self._starts_in(BULK, -(1 << 30), now)


_RANKS: Final = {name: rank for rank, name in enumerate(CLASSES)}
_GOING = error_of(Code.MODULE_RESTARTED, "the module takes nothing more: it is being closed")


def _match(counts: Sequence[int], tokens: int, ids: bytes | memoryview) -> None:
    """Raises Failed where ids and counts contradict each other."""
    if len(ids) != _ID * tokens or (counts and min(counts) < 1):
        said = (
            f"{len(ids)} bytes of ids for {tokens} tokens in {len(counts)} items of one or more; each has 4"
        )
        raise Failed(error_of(Code.BAD_REQUEST, said))
