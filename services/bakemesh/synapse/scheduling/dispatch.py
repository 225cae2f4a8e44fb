"""From lines to lanes: whenever something changed, what can run is given to lanes that can run it.

One task a run, none a request or an item. Guarantees: a lane has one thing at a time; what is cut from a line
is answered, put back, or run once more; nothing is given to a lane that is not idle. Left out: admission and
the ends of requests (`core`), what is decided (the pure modules), LOADs (`loading`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.protocol.worker.headers import GenerateStream
from bakemesh.synapse.lanes.base import LaneFailed, Lanes
from bakemesh.synapse.scheduling import cutting, failing, placement, runs, turns
from bakemesh.synapse.scheduling.asks import BULK, CLASSES, Ran, Rows
from bakemesh.synapse.scheduling.estimates import NOTHING, Estimates, measured
from bakemesh.synapse.scheduling.failing import Then
from bakemesh.synapse.scheduling.lines import Line, LineKey, Lines, Piece, Ticket
from bakemesh.synapse.scheduling.loading import Loading
from bakemesh.synapse.scheduling.placement import Ground, Load, Prompt, Run, Unload, Wait, Wanted, Why
from bakemesh.synapse.scheduling.request import Request
from bakemesh.synapse.scheduling.roster import Busy, Roster
from bakemesh.synapse.scheduling.settings import Settings
from bakemesh.synapse.scheduling.turns import Turns
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.models import ModelKey, Token, Vectors

End = Callable[[Request[Any], ErrorObject | None], None]
STREAMS: Final = GenerateStream.TYPE
_ALL = 1 << 60


class Dispatch:
    """See the module. `end` ends a request."""

    def __init__(
        self,
        lanes: Lanes,
        settings: Settings,
        clock: asyncio.AbstractEventLoop,
        end: End,
        told: Callable[[Ran], None] | None,
    ) -> None:
        self._lanes, self._settings, self._clock, self._end, self._told = lanes, settings, clock, end, told
        self.lines = Lines(CLASSES)
        self.estimates = Estimates()
        self.overall = NOTHING  # tokens of any kind, by busy seconds of lanes
        self.queued = 0  # requests that have not begun
        self._turns = Turns()
        self._bulk_running, self._bulk_ended = 0, float("-inf")
        self._nudged = self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.roster = Roster(lanes, settings, clock, self.nudge)
        self._loading = Loading(lanes, settings, self.roster, self.estimates, clock.time, self._not_loaded)

    def nudge(self) -> None:
        """Something changed: what can run now is given away, once whatever else happens in this turn of the
        loop has happened too. So callers that ask at the same time share a batch."""
        if not self._nudged and not self._closed:
            self._nudged = True
            self._clock.call_soon(self._pump)

    async def close(self) -> None:
        """Ends what runs; nobody waits for it any more. Idempotent."""
        self._closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def why(self, request: Request[Any]) -> Why:
        """Why a request has not begun."""
        ticket = request.tickets[0]
        now = self._clock.time()
        self.roster.refresh()
        found = placement.plan(self._wanted(ticket, ticket.tokens), self.roster.ground(now))
        return found.why if isinstance(found, Wait) else Why.BUSY

    # -- what goes where

    def _pump(self) -> None:
        self._nudged = False
        roster = self.roster
        if self._closed:
            return
        roster.refresh()  # before anybody asks: the next request finds it done
        if not self.lines or not roster.free:
            return
        now, waiting = self._clock.time(), frozenset[ModelKey]()
        if self._settings.memory_bytes is not None:
            waiting = self.lines.models()
        ground = roster.ground(now, waiting)
        while self._pass(ground, now) and self.lines and roster.free:
            pass

    def _pass(self, ground: Ground, now: float) -> bool:
        """One step of the first class, and of it the first line, that can take one."""
        settings = self._settings
        order = turns.order(
            self._turns,
            self._bulk_waited_s(now),
            waits_s=settings.bulk_waits_s,
            most=settings.interactive_turns,
        )
        for work_class in order:
            for head, line in self.lines.of(work_class):
                match placement.plan(self._wanted(head, line.tokens), ground):
                    case Run(lane):
                        self._run(line, lane, now)
                        return True
                    case Load(lane, spread):
                        self._loading.begin(lane, line.key.model, now, load=True)
                        self._spawn(self._loading.load(lane, line.key.model, spread=spread))
                        return True
                    case Unload(lane, model):
                        self._loading.begin(lane, model, now, load=False)
                        self._spawn(self._loading.unload(lane, model))
                        return True
                    case Wait(Why.MEMORY):
                        ground.held = True
                    case Wait(Why.REFUSED | Why.INCAPABLE | Why.MISPLACED as why):
                        self._end(_request(head), self._never(line.key, why))
                        return True
                    case _:
                        pass
        return False

    def _wanted(self, ticket: Ticket, waiting: int) -> Wanted:
        request, key = _request(ticket), ticket.key
        estimates, name = self.estimates, key.model.id
        generation = key.kind == "generate"
        return Wanted(
            key.model,
            key.needs,
            ticket.avoid,
            request.ids if generation else None,
            request.session,
            estimates.cost_s(name, key.kind) * waiting,
            estimates.cost_s(name, "load"),
        )

    def _bulk_waited_s(self, now: float) -> float:
        if self._bulk_running or not self.lines.waits(BULK):
            return 0.0
        arrived = min((head.owner.arrived for head, _ in self.lines.of(BULK)), default=now)
        return now - max(arrived, self._bulk_ended)

    def _never(self, key: LineKey, why: Why) -> ErrorObject:
        if why is Why.INCAPABLE:
            said = f"no lane's worker knows {key.needs}: options of a generation cannot be honoured"
            return error_of(Code.CAPABILITY_ABSENT, said)
        if why is Why.MISPLACED:
            least = self.roster.least_shares[key.model]
            said = f"no lane runs {least:.0%} or more of model {key.model.id} on its accelerator"
            return error_of(Code.CAPABILITY_ABSENT, said)
        said = f"model {key.model.id} is quarantined on every lane: it crashed too often, a probe has to pass"
        known = (error for (_, model), error in self.roster.refused.items() if model == key.model)
        return next(known, error_of(Code.PROBE_REQUIRED, said))

    def _not_loaded(self, model: ModelKey, error: ErrorObject) -> None:
        waiting = [owner for line in self.lines.all() if line.key.model == model for owner in line.owners()]
        for owner in waiting:
            self._end(owner, error)  # type: ignore[arg-type]  # owners are requests

    # -- runs

    def _run(self, line: Line, lane: str, now: float) -> None:
        key, settings = line.key, self._settings
        name, generation = key.model.id, key.kind == "generate"
        tokens, least = _ALL, settings.least_tokens
        # What is no more than the smallest quantum is taken as a whole, whatever the lanes are like.
        if not generation and line.tokens > min(least, settings.quantum_tokens):
            ready = self.roster.ready(key.model)
            most = cutting.most_tokens(
                self.estimates.pace(name, key.kind).rate,
                most=settings.quantum_tokens,
                least=least,
                within_s=settings.quantum_s,
            )
            tokens = cutting.quantum(line.tokens, ready, most=most, least=least)
        pieces = self.lines.take(line, tokens, 1 if generation else settings.quantum_items)
        est_s = self.estimates.work_s(name, key.kind, sum([piece.tokens for piece in pieces]), now)
        ends = now if generation else now + est_s  # a text may end at any token
        fit = []
        for piece in pieces:
            request = _request(piece.ticket)
            if request.ask.deadline < ends:
                said = f"it would end in {est_s:.3g} s, after its caller's time"
                self._end(request, error_of(Code.DEADLINE_EXCEEDED, said))
                continue
            fit.append(piece)
            request.running += 1
            if not request.begun:
                request.begun = True
                self.queued -= 1
        if not fit:
            return
        self._turns = turns.after(self._turns, key.work_class, bulk_waits=self.lines.waits(BULK))
        self._bulk_running += key.work_class == BULK
        self.roster.take(lane, Busy(key.work_class, sum([piece.tokens for piece in fit]), now, est_s))
        self.roster.used[lane, key.model] = now
        work = {"embed": self._embed, "rerank": self._rerank, "generate": self._generate}[key.kind]
        self._spawn(work(lane, key, fit, now))

    async def _embed(self, lane: str, key: LineKey, pieces: list[Piece], began: float) -> None:
        try:
            results = await runs.embed(self._lanes, lane, key, pieces, _call(pieces, began))
        finally:
            now = self._freed(lane, key, began)
        tokens = 0
        for piece, result in zip(pieces, results, strict=True):
            if isinstance(result, Vectors):
                tokens += piece.tokens
                part = Rows(piece.first, result.n, result.dims, result.data)
                self._give(piece, part)
            else:
                self._failed(piece, lane, key, result, now)
        if tokens:
            self._learn(lane, key, pieces, tokens, tokens, began, now)

    async def _rerank(self, lane: str, key: LineKey, pieces: list[Piece], began: float) -> None:
        piece = pieces[0]
        try:
            result = await runs.rerank(self._lanes, lane, key, piece, _call(pieces, began))
        finally:
            now = self._freed(lane, key, began)
        if isinstance(result, LaneFailed):
            self._failed(piece, lane, key, result, now)
        else:
            self._give(piece, result)
            self._learn(lane, key, pieces, piece.tokens, piece.tokens, began, now)

    async def _generate(self, lane: str, key: LineKey, pieces: list[Piece], began: float) -> None:
        piece, view = pieces[0], self.roster.view(lane)
        request = _request(piece.ticket)
        call = request.call = _call(pieces, began)
        can = view is not None and STREAMS in view.types
        stream = request.sampling is not None or (request.stream and can)
        self.roster.prompts[lane] = Prompt(key.model, bytes(request.ids), began, request.session)
        first: float | None = None

        def seen(token: Token) -> None:
            nonlocal first
            if first is None:
                first = self._clock.time()
            if request.stream and not request.over:
                request.seen = True
                request.put(token)

        try:
            result = await runs.generate(self._lanes, lane, request, call, seen, stream=stream)
        finally:
            request.call = None
            now = self._freed(lane, key, began)
        if isinstance(result, LaneFailed):
            self._failed(piece, lane, key, result, now)
            return
        if result.finish_reason != "cancelled":
            if first is not None:
                self.estimates.learn(key.model.id, "read", result.n_prompt, first - began, now)
            self._learn(lane, key, pieces, piece.tokens, result.n_prompt + result.n_gen, began, now)
        request.running -= 1
        if not request.over:
            request.put(result)
            self._end(request, None)

    def _freed(self, lane: str, key: LineKey, began: float) -> float:
        now = self._clock.time()
        self.roster.give_back(lane)
        self.roster.demand.used(key.model, now - began, now)
        if key.work_class == BULK:
            self._bulk_running -= 1
            self._bulk_ended = now
        return now

    def _learn(
        self, lane: str, key: LineKey, pieces: list[Piece], units: int, tokens: int, began: float, now: float
    ) -> None:
        self.roster.worked(lane)
        took_s = now - began
        self.estimates.learn(key.model.id, key.kind, units, took_s, now)
        self.overall = measured(self.overall, tokens, took_s, now)
        if self._told is not None:
            queued_s = began - min(piece.ticket.owner.arrived for piece in pieces)
            items = sum(piece.end - piece.first for piece in pieces)
            self._told(Ran(key.kind, key.model, lane, len(pieces), items, tokens, queued_s, took_s))

    # -- what came of them

    def _give(self, piece: Piece, part: Rows | memoryview) -> None:
        request = _request(piece.ticket)
        request.running -= 1
        if not request.over and request.place(piece.first, piece.end - piece.first, part):
            self._end(request, None)

    def _failed(self, piece: Piece, lane: str, key: LineKey, failed: LaneFailed, now: float) -> None:
        request, ticket = _request(piece.ticket), piece.ticket
        request.running -= 1
        match failing.then(failed, attempt=ticket.attempt, seen=request.seen):
            case Then.ELSEWHERE:
                if failed.error.code == Code.PROBE_REQUIRED:
                    self.roster.refuse(lane, key.model, failed.error)
                elif lane not in self.roster.busy:
                    self.roster.pause(lane)
                if not request.over:
                    self._put_back(piece, request, failed.error, now)
            case Then.REPEAT if not request.over:
                alone = key._replace(alone=request.number)
                again = self._ticket(piece, request, alone, attempt=1, avoid=lane)
                self._clock.call_later(
                    self._settings.max_queue_s, self._not_repeated, request, again, failed.error
                )
            case Then.END if not request.over:
                self._end(request, failing.told(failed, seen=request.seen))
            case _:
                pass

    def _put_back(self, piece: Piece, request: Request[Any], error: ErrorObject, now: float) -> None:
        if request.begun and not (request.running or request.delivered or request.held):
            if now >= request.begin_by:
                self._end(request, error)
                return
            request.begun = False
            self.queued += 1
        ticket = piece.ticket
        self._ticket(piece, request, ticket.key, attempt=ticket.attempt, avoid=ticket.avoid)

    def _ticket(
        self, piece: Piece, request: Request[Any], key: LineKey, *, attempt: int, avoid: str | None
    ) -> Ticket:
        """The items of a piece wait again."""
        old = piece.ticket
        new = Ticket(
            request,
            key,
            old.rank,
            old.counts,
            old.extra,
            piece.tokens,
            at=piece.first,
            end=piece.end,
            offset=piece.offset,
            attempt=attempt,
            avoid=avoid,
        )
        request.tickets = [each for each in request.tickets if each.at < each.end]
        request.tickets.append(new)
        self.lines.push(new)
        self.nudge()
        return new

    def _not_repeated(self, request: Request[Any], ticket: Ticket, error: ErrorObject) -> None:
        """No lane came for what crashed: its caller is told of the crash."""
        if not request.over and not request.running and ticket.at < ticket.end:
            self._end(request, error)

    def _spawn(self, run: Coroutine[Any, Any, None]) -> None:
        task = self._clock.create_task(run)
        self._tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a defect of this module: told by the loop's handler
        self.nudge()


def _request(ticket: Ticket) -> Request[Any]:
    owner = ticket.owner
    assert isinstance(owner, Request)
    return owner


def _call(pieces: list[Piece], began: float) -> Call:
    """As long as the most patient of them waits."""
    deadline, traces = began, list[str]()
    for piece in pieces:
        ask = _request(piece.ticket).ask
        deadline = max(deadline, ask.deadline)
        if ask.trace is not None:
            traces.append(ask.trace)
    return Call(within_s=max(0.001, deadline - began), attempt=pieces[0].ticket.attempt, traces=tuple(traces))
