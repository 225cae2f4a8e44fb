"""What the pool says of itself: stamps that others left, and their age. Nothing here waits for a worker."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LaneState(StrEnum):
    """What a worker does."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    PINGING = "pinging"
    UNRESPONSIVE = "unresponsive"  # a PING was not answered in time; killed when that goes on
    BACKOFF = "backoff"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the last PONG said, and when (monotonic)."""

    at: float
    rss_mb: float | None = None
    models_loaded: int | None = None
    placement_share: float | None = None


@dataclass(frozen=True, slots=True)
class LaneHealth:
    """One worker. `alive_age_s`: since it last answered anything; `pong_age_s`: since the PONG that the
    numbers are of. `busy_s`: how long its request takes so far."""

    name: str
    state: LaneState
    pid: int | None
    engine: str | None
    types: tuple[str, ...]
    starts: int
    alive_age_s: float | None
    pong_age_s: float | None
    rss_mb: float | None
    models_loaded: int | None
    placement_share: float | None
    busy_s: float | None
    models: tuple[str, ...]
    last_crash: str | None


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """One (model, config) that is registered here."""

    id: str
    digest: str
    lanes: tuple[str, ...]
    quarantined: bool
    probe_in_s: float | None


@dataclass(frozen=True, slots=True)
class Health:
    """`state`: ok, degraded (crashes over all work, or quarantines that cannot be kept), down (no worker)."""

    state: str
    degraded: bool
    queued: int
    lanes: tuple[LaneHealth, ...]
    models: tuple[ModelHealth, ...]
    problem: str | None
