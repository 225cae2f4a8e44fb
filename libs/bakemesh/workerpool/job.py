"""One request on its way through the pool: what is asked, who waits, and where it is."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.packets import Packet
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.deadlines import Work
from bakemesh.workerpool.errors import WorkerPoolError
from bakemesh.workerpool.models import ModelKey
from bakemesh.workerpool.placing import Wanted

Request = Callable[[str, str], tuple[Any, bytes | memoryview | None]]  # (model_ref, req_id)


NO_WORK = Work(0)


class RunApart(Exception):
    """Raised inside the pool when a batch of several callers crashed: each is to be run by itself."""

    def __init__(self, lane: str) -> None:
        super().__init__(lane)
        self.lane = lane


@dataclass(slots=True, eq=False)
class Job:
    """`request`: None where the model has to be loaded, and that is all. `digests`: of each caller's share,
    made when they are needed. `future`: set once, by whoever is first: answer, error, deadline, cancel."""

    stage: str
    key: ModelKey
    call: Call
    request: Request | None
    result: Callable[[Packet], Any]
    future: asyncio.Future[Any]
    wanted: Wanted
    work: Work = NO_WORK
    done_work: Callable[[Packet], Work] | None = None
    digests: Callable[[], Sequence[str]] = tuple
    callers: int = 1
    attempt: int = 0
    needs: str | None = None
    part: Callable[[h.Token], None] | None = None
    seen: bool = False
    probe: bool = False
    reloaded: bool = False
    running: Any = None  # the lane

    @property
    def over(self) -> bool:
        """Whether it has its answer, or nobody waits any more."""
        return self.future.done()

    def succeed(self, value: Any) -> None:
        """Its answer, where it has none."""
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: WorkerPoolError | RunApart) -> None:
        """Its error, where it has no answer."""
        if not self.future.done():
            self.future.set_exception(error)


def digest_of(key: ModelKey, stage: str, options: Any, ids: bytes | memoryview) -> str:
    """Names a request by all that is asked of the engine."""
    out = hashlib.sha256(repr((key.id, stage, options)).encode())
    out.update(ids)
    return out.hexdigest()
