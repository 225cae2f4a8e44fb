"""Which worker runs a request: pure. Left out: which models belong where, by demand and memory; a scheduler
that knows names the worker (`lane`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Answer(StrEnum):
    """What there is instead of a worker."""

    WAIT = "wait"
    NO_SUCH_LANE = "no_such_lane"


@dataclass(frozen=True, slots=True)
class Wanted:
    """`model`: None where none is needed. `lane`: this one and no other. `avoid`: another, if any."""

    model: Any = None
    lane: str | None = None
    avoid: str | None = None


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker. `up`: it runs, idle or not. `models`: what it has loaded."""

    name: str
    up: bool
    idle: bool
    models: Collection[Any] = ()


def choose(wanted: Wanted, seats: Sequence[Seat], loading: Collection[Any]) -> str | Answer:
    """The idle worker to run it now, or why there is none.

    One that has the model comes first, then the one with the fewest models. One LOAD of a model at a time:
    while it is loaded elsewhere, and no idle worker has it, the request waits.
    """
    if wanted.lane is not None:
        named = [seat for seat in seats if seat.name == wanted.lane]
        if not named:
            return Answer.NO_SUCH_LANE
        seats = named
    elif wanted.avoid is not None:
        others = [seat for seat in seats if seat.name != wanted.avoid]
        seats = [seat for seat in others if seat.up] or seats
    best: Seat | None = None
    for seat in seats:
        if not seat.idle:
            continue
        if wanted.model is None or wanted.model in seat.models:
            return seat.name
        if best is None or len(seat.models) < len(best.models):
            best = seat
    if best is None or wanted.model in loading:
        return Answer.WAIT
    return best.name
