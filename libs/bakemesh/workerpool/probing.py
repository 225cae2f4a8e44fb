"""Probes of quarantined models: one small run of what it crashed in, alone, on a worker.

Guarantees: one probe of a model at a time; timed ones go on until one passes or the pool is closed. An ERR
passes: the worker lives, and its callers will be told the same.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from bakemesh.protocol.worker import headers as h
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.deadlines import Work
from bakemesh.workerpool.errors import EngineCrashed, ModelUnknown, Refused
from bakemesh.workerpool.models import ModelKey

if TYPE_CHECKING:
    from bakemesh.workerpool.pool import Pool

log = logging.getLogger(__name__)
_ONE_ID = (1).to_bytes(4, "little")  # a token id that every vocabulary has
_UNDECIDED_S = 5.0  # no worker was there: soon again


class Probes:
    """Of one pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._running: dict[ModelKey, asyncio.Task[bool]] = {}
        self._timers: dict[ModelKey, asyncio.TimerHandle] = {}
        self._closed = False

    def arm(self, key: ModelKey, at_least_s: float = 0.0) -> None:
        """Sees to it that the timed probe comes, where it is quarantined."""
        loop = asyncio.get_running_loop()
        due = self._pool.ledger.refused_for(key, loop.time())
        if due is not None and not self._closed and key not in self._timers and key not in self._running:
            self._timers[key] = loop.call_later(max(due, at_least_s), self._start, key, Call())

    async def probe(self, key: ModelKey, call: Call) -> bool:
        """At once. Raises what a request can end with, but for a crash and an ERR, which decide."""
        if self._pool.artifact(key) is None:
            raise ModelUnknown(f"model {key.id} is not loaded here: load it first")
        now = asyncio.get_running_loop().time()
        if self._pool.ledger.refused_for(key, now) is None:
            return True
        task = self._running.get(key) or self._start(key, call)
        return await asyncio.shield(task)

    def close(self) -> None:
        """No more of them; those that run end with the pool's requests."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _start(self, key: ModelKey, call: Call) -> asyncio.Task[bool]:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        task = asyncio.get_running_loop().create_task(self._probe(key, call))
        self._running[key] = task
        task.add_done_callback(lambda ended: self._ended(key, ended))
        return task

    def _ended(self, key: ModelKey, task: asyncio.Task[bool]) -> None:
        self._running.pop(key, None)
        if task.cancelled() or self._closed:
            return
        undecided = task.exception() is not None
        if undecided:
            log.info("probe of model %s decided nothing: %s", key.id, task.exception())
        if self._pool.artifact(key) is not None:
            self.arm(key, _UNDECIDED_S if undecided else 0.0)

    async def _probe(self, key: ModelKey, call: Call) -> bool:
        pool, loop = self._pool, asyncio.get_running_loop()
        request, stage, work = _request(key, pool.ledger.standing(key, loop.time()).crashed_in)
        job = pool.job(stage, key, call, request, lambda packet: None, work=work, probe=True)
        try:
            await pool.submit(job)
            passed = True
        except Refused:
            passed = True
        except EngineCrashed:
            passed = False
        pool.ledger.probed(key, loop.time(), passed=passed)
        pool.save_quarantines()
        log.warning("probe of model %s: %s", key.id, "passed, it is free" if passed else "it crashed again")
        return passed


def _request(key: ModelKey, crashed_in: str) -> tuple[Any, str, Work]:
    pooling = dict(key.config).get("pooling", "mean")
    one = {"id": "0", "n_tokens": 1}

    def embed(ref: str, req_id: str) -> tuple[h.Header, bytes]:
        header = h.EmbedBatch(req_id=req_id, model_ref=ref, pooling=pooling, normalize=True, items=[one])
        return header, _ONE_ID

    def rerank(ref: str, req_id: str) -> tuple[h.Header, bytes]:
        header = h.Rerank(req_id=req_id, model_ref=ref, query_n_tokens=1, candidates=[{"n_tokens": 1}])
        return header, _ONE_ID * 2

    def generate(ref: str, req_id: str) -> tuple[h.Header, bytes]:
        return h.Generate(req_id=req_id, model_ref=ref, max_tokens=1), _ONE_ID

    if crashed_in == "embed":
        return embed, "embed", Work(1)
    if crashed_in == "rerank":
        return rerank, "rerank", Work(2)
    if crashed_in == "generate":
        return generate, "generate", Work(1, 1)
    return None, "load", Work(0)
