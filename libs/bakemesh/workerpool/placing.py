"""Which worker runs a request: pure. Left out: which models belong where, by demand and memory; a scheduler
that knows names the worker (`lane`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar


class Answer(StrEnum):
    """What there is instead of a worker."""

    WAIT = "wait"
    NO_SUCH_LANE = "no_such_lane"


class Wanted(NamedTuple):
    """`model`: None where none is needed. `lane`: this one and no other. `avoid`: another, if any."""

    model: Any = None
    lane: str | None = None
    avoid: str | None = None


class Seat(Protocol):
    """A worker. `up`: it runs, idle or not. `refs`: what it has loaded."""

    @property
    def name(self) -> str:
        """Its own."""

    @property
    def up(self) -> bool:
        """Whether it can be waited for."""

    @property
    def idle(self) -> bool:
        """Whether it takes something now."""

    @property
    def refs(self) -> Collection[Any]:
        """The models that it has loaded."""


S = TypeVar("S", bound=Seat)


def choose(wanted: Wanted, seats: Sequence[S], loading: Collection[Any]) -> S | Answer:
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
    best: S | None = None
    for seat in seats:
        if not seat.idle:
            continue
        if wanted.model is None or wanted.model in seat.refs:
            return seat
        if best is None or len(seat.refs) < len(best.refs):
            best = seat
    if best is None or wanted.model in loading:
        return Answer.WAIT
    return best
