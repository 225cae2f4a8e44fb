"""One lane: a worker that is kept running, and what it does now.

    STARTING ─→ IDLE ⇄ BUSY (LOAD where the model is not there, then the request)
       ↑          ⇅
       │       PINGING ─→ UNRESPONSIVE            every one of them: the worker ends ─→ BACKOFF
       └──────────────────────── pause ←──────────────────────────────────────────────────┘

The way of a request is plain calls, without a task of its own: asked in the caller's turn of the loop,
answered in that of the worker's bytes. Guarantees: one request at a time; each job that was given is
answered, failed, or handed to `owner.crashed`. Left out: which job comes next, and who pays (`pool`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Protocol

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.errors import LocalError
from bakemesh.protocol.worker.packets import Packet
from bakemesh.restart import Record
from bakemesh.workerpool import deadlines, pauses
from bakemesh.workerpool.charging import Cause
from bakemesh.workerpool.errors import BadRequest, CapabilityAbsent, ModelUnknown, PoolClosed, refusal
from bakemesh.workerpool.health import LaneHealth, LaneState, Stamp
from bakemesh.workerpool.job import Job
from bakemesh.workerpool.ledger import Ledger
from bakemesh.workerpool.models import Artifact, Loaded, ModelKey
from bakemesh.workerpool.places import Place
from bakemesh.workerpool.settings import Settings
from bakemesh.workerpool.starting import StartFailed, start
from bakemesh.workerpool.worker import Crash, Outcome, Worker

log = logging.getLogger(__name__)
_UP = frozenset({LaneState.IDLE, LaneState.BUSY, LaneState.PINGING})
_ENDS_S = 1.0  # for an idle worker that was told to
_STARTS_S = 8.0  # for a start that was broken off to have killed its process


class Owner(Protocol):
    """What a lane needs of its pool."""

    ledger: Ledger

    def artifact(self, key: ModelKey) -> Artifact | None:
        """What a key stands for."""

    def moved(self) -> None:
        """What a lane does is another thing now, and nothing else is."""

    def changed(self) -> None:
        """What a lane has loaded, or is told of its worker, is another thing now."""

    def freed(self, lane: Lane) -> None:
        """It is idle."""

    def crashed(self, lane: Lane, job: Job | None, crash: Crash) -> None:
        """Its worker is dead; `job` was with it."""

    def start_failed(self, lane: Lane, failed: StartFailed) -> None:
        """Its worker did not come up."""


class Lane:
    """Made, started and closed by the pool."""

    def __init__(self, name: str, settings: Settings, place: Place, owner: Owner) -> None:
        self.name, self._settings, self._place, self._owner = name, settings, place, owner
        self._loop = asyncio.get_running_loop()
        self._state = LaneState.STARTING
        self.worker: Worker | None = None
        self.refs: dict[ModelKey, str] = {}
        self.dims: dict[ModelKey, int] = {}
        self.job: Job | None = None
        self.loading: ModelKey | None = None
        self.last_crash: str | None = None
        self._in_flight = ""  # the stage that the worker has
        self._began = 0.0
        self._starts = 0
        self._proven = False  # the worker answered a run
        self._alive: float | None = None
        self._stamp: Stamp | None = None
        self._next_ping = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._life: asyncio.Task[None] | None = None

    @property
    def state(self) -> LaneState:
        """What it does."""
        return self._state

    @state.setter
    def state(self, state: LaneState) -> None:
        self._state = state
        self._owner.moved()

    # -- its life

    def start(self) -> asyncio.Task[None]:
        """Keeps a worker running from here on, until `close`."""
        self._life = self._loop.create_task(self._run(), name=f"lane {self.name}")
        return self._life

    async def _run(self) -> None:
        record = Record()
        while not self._closing:
            self.state = LaneState.STARTING
            began, self._proven = self._loop.time(), False
            self._starts += 1
            try:
                started = await start(self._settings, self._place, self.name)
            except StartFailed as failed:
                self.last_crash = failed.reason
                self._down(LaneState.BACKOFF)
                self._owner.start_failed(self, failed)
            else:
                worker = self.worker = Worker(started, self._settings)
                self.refs, self.dims, self._stamp = {}, {}, None
                self._owner.changed()
                self._alive = self._loop.time()
                self._next_ping = self._alive + self._settings.ping_every_s
                if self._closing:
                    return  # `close` ends it
                self._free()
                crash = await worker.over
                if self.worker is worker:  # it died with nothing in flight
                    self._crashed(crash)
            if self._closing:
                return
            now = self._loop.time()
            wait, record = pauses.pause(
                record, ran_s=now - began, proven=self._proven, now=now, draw=random.random()
            )
            await asyncio.sleep(wait)

    async def close(self, grace_s: float) -> None:
        """Ends the worker; what is in flight has `grace_s`. Bounded."""
        self._closing = True
        if self.worker is None and self._life is not None:
            self._life.cancel()  # it starts one, or pauses; a process that is half up is ended with it
            await asyncio.wait([self._life], timeout=_STARTS_S)
        worker = self.worker
        if worker is not None:
            await worker.stop(grace_s if self.job is not None else _ENDS_S)
        self._down(LaneState.CLOSED)

    @property
    def idle(self) -> bool:
        """Whether a job may be given."""
        worker = self.worker
        return self._state is LaneState.IDLE and worker is not None and worker.up

    @property
    def up(self) -> bool:
        """Whether its worker runs, and answers."""
        worker = self.worker
        return worker is not None and self._state in _UP and worker.up

    def _down(self, state: LaneState) -> None:
        self.state, self.worker, self.job, self.loading = state, None, None, None
        self.refs = {}
        self._owner.changed()
        self._untimed()

    def _untimed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _crashed(self, crash: Crash) -> None:
        job = self.job
        self.last_crash = f"{crash.reason} ({crash.exit}) in {crash.doing}"
        self._down(LaneState.CLOSED if self._closing else LaneState.BACKOFF)
        self._owner.crashed(self, job, crash)

    # -- idle, and PING

    def _free(self) -> None:
        self.job, self._in_flight = None, ""
        if self._closing or self.worker is None or not self.worker.up:
            return
        now = self._loop.time()
        if now >= self._next_ping:
            self._ping()
            return
        self.state = LaneState.IDLE
        if self._timer is None:  # one for many requests: where it finds a busy worker, this here pings next
            self._timer = self._loop.call_at(self._next_ping, self._ping_due)
        self._owner.freed(self)

    def _ping_due(self) -> None:
        self._timer = None
        if self.idle:
            self._ping()

    def _ping(self) -> None:
        worker, settings = self.worker, self._settings
        self._untimed()
        if worker is None or not worker.up or self._closing:
            return
        self.state = LaneState.PINGING
        # One request at a time: what is missed is the one PING's answer, looked for again and again.
        patience = settings.ping_within_s + (settings.ping_misses - 1) * settings.ping_every_s
        worker.ask("ping", h.Ping(req_id=worker.next_id()), None, patience, self._ponged)
        self._timer = self._loop.call_later(settings.ping_within_s, self._missed)

    def _missed(self) -> None:
        self.state = LaneState.UNRESPONSIVE

    def _ponged(self, outcome: Outcome) -> None:
        self._untimed()
        if isinstance(outcome, Crash):
            self._crashed(outcome)
            return
        now = self._alive = self._loop.time()
        self._next_ping = now + self._settings.ping_every_s
        pong = outcome.header
        if isinstance(pong, h.Pong):
            self._stamp = Stamp(now, pong.rss_mb, pong.models_loaded, pong.placement_share)
            self._owner.changed()
        self._free()

    # -- a job

    def give(self, job: Job) -> None:
        """Runs it; only while idle."""
        assert self.worker is not None
        self.state, self.job, job.running = LaneState.BUSY, job, self
        if job.needs is not None and job.needs not in self.worker.can:
            said = f"the worker of lane {self.name} does not know {job.needs}"
            self._finish(job, CapabilityAbsent(said))
        elif job.key in self.refs or job.stage == "unload":
            self._request(job)
        else:
            self._load(job)

    def leave(self, job: Job) -> bool:
        """Nobody waits for it any more: a generation is told to stop. Whether it was."""
        if self.job is not job or self._in_flight != "generate" or self.worker is None:
            return False
        return self.worker.cancel()

    def _load(self, job: Job) -> None:
        artifact = self._owner.artifact(job.key)
        if artifact is None:
            self._finish(job, ModelUnknown(f"model {job.key.id} is not loaded here: load it first"))
            return
        try:
            size = artifact.path.stat().st_size
        except OSError:
            size = 0  # the worker says what is wrong with it
        assert self.worker is not None
        header = h.Load(
            req_id=self.worker.next_id(),
            artifact_path=str(artifact.path),
            artifact_digest=artifact.digest,
            format=artifact.format,
            runtime_config=dict(job.key.config),
        )
        self.loading = job.key
        self._ask(job, "load", header, None, deadlines.load_deadline(self._settings.deadlines, size))

    def _request(self, job: Job) -> None:
        if job.request is None:
            self._finish(job, value=Loaded(job.key, self.dims.get(job.key, 0), 0))
            return
        ref = self.refs.get(job.key)
        if ref is None:  # UNLOAD of what is not loaded is done
            self._finish(job, value=None)
            return
        assert self.worker is not None
        header, data = job.request(ref, self.worker.next_id())
        within_s = self._owner.ledger.deadline(job.key, job.stage, job.work)
        self._ask(job, job.stage, header, data, within_s)

    def _ask(
        self, job: Job, stage: str, header: h.Header, data: bytes | memoryview | None, within_s: float
    ) -> None:
        assert self.worker is not None
        self._in_flight, self._began = stage, self._loop.time()
        part = (lambda token: self._token(job, token)) if job.part is not None else None
        try:
            self.worker.ask(stage, header, data, within_s, self._answered, part)
        except LocalError as error:
            self.loading = None
            gone = self._closing
            self._finish(job, PoolClosed("the pool is being closed") if gone else BadRequest(str(error)))

    def _token(self, job: Job, token: h.Token) -> None:
        job.seen = True
        if job.part is not None and not job.over:
            job.part(token)

    def _answered(self, outcome: Outcome) -> None:
        job, stage, now = self.job, self._in_flight, self._loop.time()
        assert job is not None
        self.loading = None
        if isinstance(outcome, Crash):
            if outcome.cause is Cause.TIMEOUT and stage == job.stage:
                self._owner.ledger.overrun(job.key, stage, job.work, now - self._began)
            self._crashed(outcome)
            return
        self._alive = now
        header = outcome.header
        if isinstance(header, h.Err):
            self._refused(job, stage, header)
        elif stage == "load" and job.stage != "load":
            self._loaded(job, header)
            if job.over:
                self._finish(job)  # its caller has gone; the model is there for others
            else:
                self._request(job)
        elif stage == "load":
            self._loaded(job, header)
            self._finish(job, value=Loaded(job.key, header.dims, header.cold_load_ms))
        else:
            self._done(job, stage, outcome, now - self._began)

    def _loaded(self, job: Job, header: h.Loaded) -> None:
        self.refs[job.key] = header.model_ref
        self.dims[job.key] = header.dims
        self._owner.changed()

    def _done(self, job: Job, stage: str, packet: Packet, took_s: float) -> None:
        ledger = self._owner.ledger
        self._proven = True
        if job.done_work is not None:
            ledger.measured(job.key, stage, job.done_work(packet), took_s)
        if ledger.strikes:
            for digest in job.digests():
                ledger.strikes.clear(digest)
        if stage == "unload":
            self.refs.pop(job.key, None)
            self._owner.changed()
        self._finish(job, value=job.result(packet))

    def _refused(self, job: Job, stage: str, header: h.Err) -> None:
        if header.code == "unknown_model" and not job.reloaded and stage != "unload":
            job.reloaded = True
            self.refs.pop(job.key, None)
            self._owner.changed()
            self._load(job)
            return
        self._finish(job, refusal(stage, header.code, header.msg))

    def _finish(self, job: Job, error: Exception | None = None, value: object = None) -> None:
        job.running = None
        if error is not None:
            job.fail(error)  # type: ignore[arg-type]
        else:
            job.succeed(value)
        self._free()

    # -- what is told

    def health(self, now: float) -> LaneHealth:
        """As it is known now."""
        worker, stamp = self.worker, self._stamp
        engine = None
        if worker is not None:
            said = worker.hello.engine
            engine = f"{said.get('name') or said.get('engine') or '?'} {said.get('version') or ''}".strip()
        return LaneHealth(
            name=self.name,
            state=self.state,
            pid=worker.pid if worker is not None else None,
            engine=engine,
            types=tuple(sorted(worker.can)) if worker is not None else (),
            starts=self._starts,
            alive_age_s=None if self._alive is None else now - self._alive,
            pong_age_s=None if stamp is None else now - stamp.at,
            rss_mb=stamp.rss_mb if stamp else None,
            models_loaded=stamp.models_loaded if stamp else None,
            placement_share=stamp.placement_share if stamp else None,
            busy_s=now - self._began if self.state is LaneState.BUSY else None,
            models=tuple(sorted(key.id for key in self.refs)),
            last_crash=self.last_crash,
        )
