"""What a lane says of itself, and when: `status_of` is pure, `Teller` says it.

A change is told at once, but no two closer than `TOLD_S`: a lane that does short work says `busy` when the
first begins and what it is then a moment later, not twice a request. Told again every `IDLE_S`, every
`BUSY_S` while it has a request: by its silence others notice that a host is gone. Guarantees: what was told
last is what is, within `TOLD_S`; while the link is down nothing is told, and all of it once it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.events import Event, Reconnected
from bakemesh.bus.sealing import payload_of
from bakemesh.protocol import subjects
from bakemesh.protocol.inference.lanes import LaneStatus
from bakemesh.workerpool import ModelKey, Pool, Turns
from bakemesh.workerpool.health import LaneHealth, LaneState
from bakemesh.workerpool.lane import Lane

log = logging.getLogger(__name__)
TOLD_S: Final = 0.02
IDLE_S: Final = 2.0
BUSY_S: Final = 1.0
CLOSED: Final = "closed"
_WORDS: Final = {
    LaneState.STARTING: "starting",
    LaneState.IDLE: "idle",
    LaneState.BUSY: "busy",
    LaneState.PINGING: "idle",
    LaneState.UNRESPONSIVE: "unresponsive",
    LaneState.BACKOFF: "crashed",
    LaneState.CLOSED: CLOSED,
}


@dataclass(frozen=True, slots=True)
class Host:
    """What all lanes of a host say alike."""

    node: str
    node_id: str
    version: str
    run: str


def state_of(state: LaneState, *, taken: bool, closing: bool) -> str:
    """The word for a lane. `taken`: it has somebody's request; `closing`: it takes no other."""
    word = _WORDS[state]
    if taken:
        return "busy" if word == "idle" else word
    return CLOSED if closing and word != "busy" else word


def crashes_of(health: LaneHealth) -> int:
    """How many workers of the lane ended: every start but the one that lives."""
    return max(0, health.starts - (health.state is not LaneState.BACKOFF))


def status_of(
    host: Host,
    key: str,
    health: LaneHealth,
    *,
    serial: int,
    state: str,
    busy_s: float | None,
    degraded: bool,
    loaded: Iterable[ModelKey],
    refused: Iterable[ModelKey],
) -> LaneStatus:
    """The message. `busy_s`: how long it has its request; None: it has none."""
    return LaneStatus(
        node=host.node,
        node_id=host.node_id,
        lane=key,
        run=host.run,
        serial=serial,
        state=state,
        degraded=degraded,
        engine=health.engine,
        types=list(health.types),
        pid=health.pid,
        rss_mb=health.rss_mb,
        placement_share=health.placement_share,
        models=_models(frozenset(loaded), frozenset(refused)),
        crashes=crashes_of(health),
        busyms=None if busy_s is None else int(busy_s * 1000),
        problem=health.last_crash,
        version=host.version,
    )


def _models(loaded: frozenset[ModelKey], refused: frozenset[ModelKey]) -> list[dict[str, Any]]:
    return [
        {
            "digest": f"sha256:{key.digest}",
            "format": key.format,
            "config": dict(key.config),
            "loaded": int(key in loaded),
            "quarantined": int(key in refused),
        }
        for key in sorted(loaded | refused, key=lambda each: each.id)
    ]


@dataclass(slots=True)
class _Told:
    """Of one lane."""

    lane: Lane
    key: str
    subject: str
    serial: int = 0
    at: float = float("-inf")
    taken: bool = False
    timer: asyncio.TimerHandle | None = None


class Teller:
    """Of one lane host. Made when its pool is up; `changed` is to be called when anything changed."""

    def __init__(self, bus: Bus, host: Host, keys: dict[str, str], pool: Pool, turns: Turns) -> None:
        self._bus, self._host, self._pool, self._turns = bus, host, pool, turns
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._lanes: list[_Told] = []
        for lane in pool.lanes:
            key = keys[lane.name]
            subject = subjects.build(bus.mesh, host.node_id, bus.settings.party, key, LaneStatus.TYPE)
            self._lanes.append(_Told(lane, key, subject))
        self._seen: dict[str, tuple[object, ...]] = {}
        self._off = bus.on_event(self._on_event)
        self.changed()

    def close(self) -> None:
        """The last word of every lane: it is closed."""
        self._off()
        for told in self._lanes:
            if told.timer is not None:
                told.timer.cancel()
            self._say(told, CLOSED)

    def closing(self) -> None:
        """Lanes that have no request are closed from here on; the others when they are done."""
        self._closing = True
        self.changed()

    def status(self, lane: Lane) -> LaneStatus:
        """What a lane says now, under the serial that it said last."""
        told = next(each for each in self._lanes if each.lane is lane)
        return self._status(told, None)

    def changed(self) -> None:
        """Something did: of which lane, is looked up here."""
        now, refused = self._loop.time(), self._refused()
        for told in self._lanes:
            seen = self._facts(told.lane, refused)
            if self._seen.get(told.key) == seen:
                continue
            self._seen[told.key] = seen
            self._time(told, max(now, told.at + TOLD_S))

    def _facts(self, lane: Lane, refused: frozenset[ModelKey]) -> tuple[object, ...]:
        """What is told at once when it changes."""
        pid = lane.worker.pid if lane.worker is not None else None
        taken = self._turns.since(lane.name)
        return lane.state, taken, pid, self._closing, tuple(lane.refs), refused

    def _refused(self) -> frozenset[ModelKey]:
        pool, now = self._pool, self._loop.time()
        return frozenset(key for key in pool.known() if pool.ledger.refused_for(key, now) is not None)

    def _time(self, told: _Told, at: float) -> None:
        if told.timer is not None:
            if told.timer.when() <= at and not told.timer.cancelled():
                return
            told.timer.cancel()
        told.timer = self._loop.call_at(at, self._due, told)

    def _due(self, told: _Told) -> None:
        told.timer = None
        self._say(told)
        self._time(told, self._loop.time() + (BUSY_S if told.taken else IDLE_S))

    def _say(self, told: _Told, state: str | None = None) -> None:
        told.at = self._loop.time()
        told.serial += 1
        payload = payload_of(self._status(told, state), self._bus.settings.sender)
        with contextlib.suppress(BusError):  # a link that is down: told again when it is back
            self._bus.link.post(told.subject, payload)

    def _status(self, told: _Told, state: str | None) -> LaneStatus:
        lane, now = told.lane, self._loop.time()
        since = self._turns.since(lane.name)
        health = lane.health(now)
        told.taken = since is not None
        return status_of(
            self._host,
            told.key,
            health,
            serial=told.serial,
            state=state or state_of(health.state, taken=told.taken, closing=self._closing),
            busy_s=now - since if since is not None else health.busy_s,
            degraded=self._pool.ledger.degraded(now),
            loaded=lane.refs,
            refused=self._refused(),
        )

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Reconnected):
            now = self._loop.time()
            for told in self._lanes:
                self._time(told, now)


def new_run() -> str:
    """The name of one life of a host."""
    return secrets.token_hex(8)
