"""The pool: requests in, exactly one answer each; workers kept running beneath.

Guarantees: every wait has a deadline; a request ends as its result or one typed error, whatever dies; a
caller's own deadline or cancel kills nobody (but a worker that ignores a CANCEL); after `close`, and after a
kill -9 of this process, no worker is left. Left out: order among classes of callers, merging of items, which
models belong on which worker, unloading under a memory budget: a scheduler's, above this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self

from bakemesh.protocol.worker import headers as h
from bakemesh.workerpool import health, quarantine
from bakemesh.workerpool.asking import Asking
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.charging import Again, Cause, Facts, judge
from bakemesh.workerpool.crashes import crash_error, start_error
from bakemesh.workerpool.errors import (
    BadRequest,
    Cancelled,
    DeadlineExceeded,
    EngineCrashed,
    LaneBusy,
    ModelQuarantined,
    ModelUnknown,
    PoolClosed,
    Refused,
    RequestPoisoned,
    WorkerPoolError,
    WorkerUnavailable,
)
from bakemesh.workerpool.job import Job, RunApart
from bakemesh.workerpool.lane import Lane
from bakemesh.workerpool.ledger import Ledger
from bakemesh.workerpool.models import Artifact, Loaded, ModelKey, key_of
from bakemesh.workerpool.places import Place
from bakemesh.workerpool.placing import Answer, Wanted, choose
from bakemesh.workerpool.probing import Probes
from bakemesh.workerpool.settings import Settings
from bakemesh.workerpool.starting import StartFailed
from bakemesh.workerpool.worker import Crash

log = logging.getLogger(__name__)


class Pool(Asking):
    """`start`, then ask (see `Asking`), then `close`; or `async with`. Of one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lanes: list[Lane] = []
        self._models: dict[ModelKey, Artifact] = {}
        self._queue: deque[Job] = deque()
        self._lives: list[asyncio.Task[None]] = []
        self._place: Place | None = None
        self._open = False
        self._pumping = self._pump_again = False
        self._fresh: Job | None = None  # asked in this turn, and looked at already
        self._first: asyncio.Future[None] | None = None
        self._unsaved: str | None = None
        self._probes = Probes(self)
        self._watching: Callable[[], None] = lambda: None
        self._told = False  # that something changed, in this turn
        self.version = 0  # of all that can be told of the lanes, but for what they do

    def watch(self, changed: Callable[[], None]) -> None:
        """`changed` is called soon after anything changed in what the lanes do, have loaded, or refuse: once
        for all that happens in a turn of the loop."""
        self._watching = changed

    # -- life

    async def start(self) -> None:
        """Starts the workers, and waits for the first. Raises EngineCrashed (with the worker's output) where
        none comes up, RuntimeDirRefused; nothing is left running then."""
        self._loop = asyncio.get_running_loop()
        settings, now = self.settings, self._loop.time()
        self._place = Place(settings.runtime_dir)
        book = quarantine.Book({})
        if settings.quarantine_file is not None and settings.budget is not None:
            longest = settings.budget.probe_most_s
            book = quarantine.load(settings.quarantine_file, time.time(), longest)
        if book.problem is not None:
            log.error("every model needs a probe before it is used: %s", book.problem)
        self.ledger = Ledger(settings.budget, settings.deadlines, settings.poison_s, book, now)
        self._open = True
        if book.problem is not None:
            self.save_quarantines()
        for key in self._models:
            self._probes.arm(key)
        self._first = self._loop.create_future()
        for number in range(settings.workers):
            lane = Lane(f"w{number}", settings, self._place, self)
            self.lanes.append(lane)
            life = lane.start()
            life.add_done_callback(self._lane_ended)
            self._lives.append(life)
        try:
            async with asyncio.timeout(settings.start_s):
                await self._first
        except TimeoutError:
            why = self._why_down()
            await self.close()
            said = f"no worker came up within {settings.start_s:g} s ({why})"
            raise EngineCrashed(said, stage="start") from None
        except BaseException:
            await self.close()
            raise

    async def drain(self, within_s: float) -> bool:
        """Takes nothing new; whether all that was there was answered in time."""
        self._open = False
        deadline = self._loop.time() + within_s
        while self._queue or any(lane.job is not None for lane in self.lanes):
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(0.01)
        return True

    async def close(self, grace_s: float = 0.0) -> None:
        """Ends everything: what waits ends as PoolClosed at once, what runs after `grace_s`. Again: nothing.
        Takes `grace_s` and some seconds at the most."""
        self._open = False
        self._probes.close()
        while self._queue:
            self._queue.popleft().fail(PoolClosed("the pool was closed before a worker was free"))
        await asyncio.gather(*(lane.close(grace_s) for lane in self.lanes))
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        self._lives = []
        if self._place is not None:
            self._place.close()
            self._place = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- models

    def know(self, artifact: Artifact, config: Mapping[str, str]) -> ModelKey:
        """Registers a (model, config): each worker loads it when it first needs it."""
        key = key_of(artifact, config)
        self._models[key] = artifact
        self.version += 1  # a quarantine of it is told from here on
        if self._open:
            self._probes.arm(key)
        return key

    async def load(self, artifact: Artifact, config: Mapping[str, str], call: Call | None = None) -> Loaded:
        """Registers a (model, config), and loads it on one worker (`call.lane`: on this one); others load it
        when they first need it, and again after a restart, from the path that was proven last. Raises
        LoadFailed, EngineCrashed, …"""
        key, call = key_of(artifact, config), call or Call()
        for lane in self.lanes:
            if key in lane.refs and call.lane in (None, lane.name) and self._refusal_of(key) is None:
                self._models.setdefault(key, artifact)
                return Loaded(key, lane.dims[key], 0)
        before = self._models.get(key)
        self._models[key] = artifact
        self.version += 1
        self._probes.arm(key)
        job = self.job("load", key, call, None, lambda packet: None)
        try:
            loaded: Loaded = await self.submit(job)
        except Refused:
            if self._models.get(key) is artifact:
                if before is None:
                    del self._models[key]
                else:
                    self._models[key] = before
            raise
        return loaded

    async def unload(self, key: ModelKey, call: Call | None = None) -> None:
        """Forgets it, and gives its memory back on every worker; `call.lane`: on this one, not forgotten.
        Of an unknown one: nothing."""
        call = call or Call()
        if call.lane is None:
            self._models.pop(key, None)
        gone = []
        for lane in self.lanes:
            if call.lane not in (None, lane.name):
                continue
            if key in lane.refs or lane.loading == key:
                each = Call(within_s=call.within_s, lane=lane.name, attempt=1)
                request = lambda ref, req_id: (h.Unload(req_id=req_id, model_ref=ref), None)  # noqa: E731
                gone.append(self.submit(self.job("unload", key, each, request, lambda packet: None)))
        for result in await asyncio.gather(*gone, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, EngineCrashed):
                raise result  # one that crashed has given it back too

    def lane(self, name: str) -> Lane | None:
        """The lane of that name."""
        for lane in self.lanes:
            if lane.name == name:
                return lane
        return None

    def artifact(self, key: ModelKey) -> Artifact | None:
        """What a key stands for; None: nobody loaded it."""
        return self._models.get(key)

    def known(self) -> Collection[ModelKey]:
        """Every (model, config) that is registered."""
        return self._models.keys()

    async def probe(self, key: ModelKey, call: Call | None = None) -> bool:
        """Tries a quarantined model at once; whether it is free now."""
        return await self._probes.probe(key, call or Call())

    def health(self) -> health.Health:
        """Stamps and their ages; waits for nothing."""
        now = self._loop.time()
        lanes = tuple(lane.health(now) for lane in self.lanes)
        models = []
        for key in self._models:
            due = self.ledger.refused_for(key, now)
            on = tuple(lane.name for lane in self.lanes if key in lane.refs)
            models.append(health.ModelHealth(key.id, key.digest, on, due is not None, due))
        degraded = self.ledger.degraded(now)
        up = any(lane.up for lane in self.lanes)
        state = "down" if not up else "degraded" if degraded or self._unsaved else "ok"
        return health.Health(state, degraded, len(self._queue), lanes, tuple(models), self._unsaved)

    # -- the way of a job

    def job(self, stage: str, key: ModelKey, call: Call, request: Any, result: Any, **more: Any) -> Job:
        """A job of this call."""
        wanted = Wanted(key, call.lane)
        future = self._loop.create_future()
        return Job(stage, key, call, request, result, future, wanted, attempt=call.attempt, **more)

    async def submit(self, job: Job) -> Any:
        """Runs a job, and waits for its end, not longer than its caller would."""
        if not self._open:
            raise PoolClosed("the pool is closed")
        if (refusal := self._refusal(job)) is not None:
            raise refusal
        call, loop = job.call, self._loop
        until = call.until(loop.time(), self.settings.within_s)
        timers = [loop.call_at(until, self._expire, job)]
        self._queue.append(job)
        self._fresh = job
        self.pump()
        self._fresh = None
        if call.queue_s is not None and job.running is None and not job.over:
            if call.queue_s <= 0:
                self._waited(job, call.queue_s)
            else:
                timers.append(loop.call_later(call.queue_s, self._waited, job, call.queue_s))
        cancel = lambda: self._cancel(job)  # noqa: E731
        call.bind(cancel)
        try:
            return await job.future
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._leave(job)
            if job.running is None:  # while no worker is up nobody else would take it out
                with contextlib.suppress(ValueError):
                    self._queue.remove(job)
            raise
        finally:
            call.unbind(cancel)
            for timer in timers:
                timer.cancel()

    def pump(self) -> None:
        """Gives queued jobs to idle lanes, in their order; a job that has to wait lets later ones pass."""
        if self._pumping:
            self._pump_again = True
            return
        self._pumping = True
        try:
            self._pump_again = True
            while self._pump_again:
                self._pump_again = False
                queue = self._queue
                # For the first one, who has just come, `_pass` finds out by itself.
                if queue and (queue[0] is self._fresh or self._some_idle()):
                    self._pass()
        finally:
            self._pumping = False

    def _pass(self) -> None:
        waiting, self._queue = self._queue, deque()
        kept: deque[Job] = deque()
        while waiting:
            job = waiting.popleft()
            if job.over:
                continue
            if job is not self._fresh and (refusal := self._refusal(job)) is not None:
                job.fail(refusal)
                continue
            loading = {lane.loading for lane in self.lanes if lane.loading is not None}
            found = choose(job.wanted, self.lanes, loading)
            if found is Answer.NO_SUCH_LANE:
                names = ", ".join(lane.name for lane in self.lanes)
                job.fail(BadRequest(f"there is no lane {job.wanted.lane!r}; there are {names}"))
            elif found is Answer.WAIT:
                kept.append(job)
            else:
                found.give(job)
            if waiting and not self._some_idle():
                kept.extend(waiting)
                break
        self._queue = kept + self._queue

    def _some_idle(self) -> bool:
        return any(lane.idle for lane in self.lanes)

    def _refusal(self, job: Job) -> WorkerPoolError | None:
        if job.probe or job.stage == "unload":
            return None
        if job.key not in self._models:
            return ModelUnknown(f"model {job.key.id} is not loaded here: load it first")
        if (refused := self._refusal_of(job.key)) is not None:
            return refused
        strikes, now = self.ledger.strikes, self._loop.time()
        if strikes and job.callers == 1:
            for digest in job.digests():
                if (left := strikes.poison_for(digest, now)) is not None:
                    said = f"this very request crashed its worker before; refused for {left:.0f} s more"
                    return RequestPoisoned(said, stage=job.stage, safe_to_retry=False)
        return None

    def _refusal_of(self, key: ModelKey) -> ModelQuarantined | None:
        due = self.ledger.refused_for(key, self._loop.time())
        if due is None:
            return None
        said = f"model {key.id} crashed its workers too often; the next probe is in {due:.0f} s"
        return ModelQuarantined(said, retry_after_s=due)

    def _leave(self, job: Job) -> None:
        if job.running is not None:
            job.running.leave(job)

    def _expire(self, job: Job) -> None:
        if job.over:
            return
        within = self.settings.within_s if job.call.within_s is None else job.call.within_s
        if job.running is None and not any(lane.up for lane in self.lanes):
            self._unavailable(job, within)
        else:
            where = "for a worker" if job.running is None else f"in {job.stage}"
            job.fail(DeadlineExceeded(f"{within:.3g} s were over {where}", safe_to_retry=True))
        self._leave(job)

    def _waited(self, job: Job, queue_s: float) -> None:
        if job.running is not None or job.over:
            return
        if any(lane.up for lane in self.lanes):
            said = f"no worker that may run this was free within {queue_s:.3g} s"
            job.fail(LaneBusy(said, safe_to_retry=True))
        else:
            self._unavailable(job, queue_s)

    def _unavailable(self, job: Job, waited_s: float) -> None:
        said = f"no worker came up within {waited_s:.3g} s ({self._why_down()})"
        job.fail(WorkerUnavailable(said, safe_to_retry=True))

    def _why_down(self) -> str:
        why = [f"{lane.name}: {lane.last_crash}" for lane in self.lanes if lane.last_crash]
        return "; ".join(why) or "they are starting"

    def _lane_ended(self, life: asyncio.Task[None]) -> None:
        if life.cancelled() or (error := life.exception()) is None:
            return
        log.critical("%s ended by a defect of the host: %r", life.get_name(), error, exc_info=error)
        if self._first is not None and not self._first.done():
            self._first.set_exception(error)

    def _cancel(self, job: Job) -> None:
        if job.over:
            return
        if job.running is not None and job.running.leave(job):
            return  # its end comes from the worker, or with it
        job.fail(Cancelled(f"{job.stage} was cancelled"))

    # -- what lanes tell

    def changed(self) -> None:
        """See lane.Owner."""
        self.version += 1
        self.moved()

    def moved(self) -> None:
        """See lane.Owner."""
        if not self._told:
            self._told = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._told = False
        self._watching()

    def freed(self, lane: Lane) -> None:
        """See lane.Owner."""
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
        self.pump()

    def start_failed(self, lane: Lane, failed: StartFailed) -> None:
        """See lane.Owner."""
        self.ledger.charge_lane(self._loop.time())
        self.changed()
        log.warning("lane %s: %s\n%s", lane.name, failed.reason, failed.output)
        first = self._first
        if first is not None and not first.done() and (failed.mismatch or self._none_left_to_try()):
            first.set_exception(start_error(lane.name, failed))

    def _none_left_to_try(self) -> bool:
        return all(lane.state is health.LaneState.BACKOFF for lane in self.lanes)

    def crashed(self, lane: Lane, job: Job | None, crash: Crash) -> None:
        """See lane.Owner."""
        now = self._loop.time()
        self.changed()  # what is charged below is told of the lanes
        if crash.cause is not Cause.CLOSED:
            log.warning("lane %s: %s (%s) in %s", lane.name, crash.reason, crash.exit, crash.doing)
        if job is None:
            if judge(Facts(cause=crash.cause, doing=crash.doing)).charge_lane:
                self.ledger.charge_lane(now)
            return
        job.running = None
        strikes, digests = self.ledger.strikes, job.digests()
        facts = Facts(
            cause=crash.cause,
            doing=crash.doing,
            attempt=job.attempt,
            callers=job.callers,
            suspect=job.callers == 1 and any(strikes.suspect(each, now) for each in digests),
            seen=job.seen,
            gone=job.over,
            may_repeat=self.settings.redispatch,
            probe=job.probe,
        )
        verdict = judge(facts)
        if verdict.charge_lane:
            self.ledger.charge_lane(now)
        if verdict.suspects or verdict.poison:
            strikes.forget(now)
            for each in digests:
                strikes.note(each, now, poison=verdict.poison)
        quarantined = verdict.charge and self.ledger.charge(job.key, now, crash.doing)
        if quarantined:
            log.error("model %s is quarantined: it crashed its workers too often", job.key.id)
            self.save_quarantines()
            self._probes.arm(job.key)
        if crash.cause is Cause.CLOSED:
            job.fail(PoolClosed(f"the pool was closed during {crash.doing}"))
        elif quarantined:  # the last word is the crash itself, with its output
            job.fail(crash_error(lane.name, crash, poison=verdict.poison))
        elif verdict.again is Again.ONCE and self._open:
            job.attempt += 1
            job.wanted = Wanted(job.key, job.call.lane, avoid=lane.name)
            self._queue.appendleft(job)
        elif verdict.again is Again.APART:
            job.fail(RunApart(lane.name))
        else:
            job.fail(crash_error(lane.name, crash, poison=verdict.poison))
        self.pump()

    def save_quarantines(self) -> None:
        """After a change of them; where they cannot be kept, `health` says it."""
        self.changed()
        file = self.settings.quarantine_file
        if file is None:
            return
        try:
            quarantine.save(file, self.ledger.book(self._loop.time()), time.time())
            self._unsaved = None
        except OSError as error:
            self._unsaved = f"quarantines cannot be kept in {file}: {error.strerror}"
            log.error("%s", self._unsaved)
