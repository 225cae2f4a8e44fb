"""One request a lane at a time: who has the turn.

A pool queues; a lane that is offered to others refuses at once. Whoever takes a turn may ask the pool of this
lane for as long as the request takes, its runs after a crash included, and gives the turn back. Guarantees:
two requests never have one lane; a lane that is taken, works for nobody any more, or is down is refused in
the same turn of the loop. A PING, which takes a moment, is none of these. Left out: which lane.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from bakemesh.workerpool.call import Call
from bakemesh.workerpool.errors import BadRequest, LaneBusy, WorkerUnavailable
from bakemesh.workerpool.health import LaneState
from bakemesh.workerpool.lane import Lane
from bakemesh.workerpool.pool import Pool

# For what comes between a turn and its run: a PING's answer, a worker that has to come up again.
AGAIN_S = 20.0


class Turns:
    """Of one pool, all of whose requests take turns."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._since: dict[str, float] = {}
        self._closed = False
        self._last: asyncio.Future[None] | None = None

    @contextlib.contextmanager
    def taken(self, name: str, now: float, call: Call) -> Iterator[Call]:
        """The turn of this lane; `call` is its own then. Raises BadRequest, LaneBusy,
        WorkerUnavailable."""
        self.take(name, now, call)
        try:
            yield call
        finally:
            self.give_back(name)

    def take(self, name: str, now: float, call: Call) -> None:
        """Takes the turn of this lane, until `give_back`; `call` is its own then. Raises as `taken`."""
        self.check(name)
        self._since[name] = now
        self._pool.moved()
        call.lane, call.queue_s = name, AGAIN_S

    def give_back(self, name: str) -> None:
        """The end of a turn that was taken."""
        del self._since[name]
        if not self._since and self._last is not None and not self._last.done():
            self._last.set_result(None)
        self._pool.moved()

    def since(self, name: str) -> float | None:
        """When its turn was taken; None: nobody has it."""
        return self._since.get(name)

    def free(self, lane: Lane) -> bool:
        """Whether a turn would be given."""
        return not self._closed and lane.name not in self._since and _ready(lane)

    async def idle(self, within_s: float) -> bool:
        """Returns when nobody has one any more; whether that was in time."""
        if self._since:
            self._last = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._last}, timeout=within_s)
        return not self._since

    def close(self) -> None:
        """Gives no more of them."""
        self._closed = True
        self._pool.changed()

    def check(self, name: str) -> None:
        """Raises what `taken` would: BadRequest, LaneBusy, WorkerUnavailable."""
        lane = self._pool.lane(name)
        if lane is None:
            names = ", ".join(each.name for each in self._pool.lanes)
            raise BadRequest(f"there is no lane {name!r}; there are {names}")
        if self._closed:
            raise LaneBusy(f"lane {name} takes nothing more: its host is ending", safe_to_retry=True)
        if name in self._since:
            raise LaneBusy(f"lane {name} is occupied", safe_to_retry=True)
        if _ready(lane):
            return
        if lane.up:
            raise LaneBusy(f"lane {name} is occupied", safe_to_retry=True)
        why = f" ({lane.last_crash})" if lane.last_crash else ""
        raise WorkerUnavailable(f"the worker of lane {name} is not up{why}", safe_to_retry=True)


def _ready(lane: Lane) -> bool:
    return lane.idle or (lane.up and lane.state is LaneState.PINGING)
