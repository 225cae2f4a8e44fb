"""How long work takes, from what was measured: pure.

A pace is an average that follows the newest measurements, weighted by tokens. It is believed from the third
measurement on and for a minute after the last; before and after, nothing is refused for it: who refused on
the word of an old number would never get a new one. Left out: deadlines that kill (workerpool.deadlines).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

_FADE = 0.8  # what is left of the older measurements at each new one
MEASUREMENTS = 3
BELIEVED_S = 60.0


class Pace(NamedTuple):
    """`units` took `seconds`, in all runs so far, the older the less. `at`: the last measurement."""

    runs: int = 0
    units: float = 0.0
    seconds: float = 0.0
    at: float = 0.0

    @property
    def cost_s(self) -> float:
        """Of a unit; 0 where nothing is known."""
        return self.seconds / self.units if self.units > 0 else 0.0

    @property
    def rate(self) -> float:
        """Units a second; 0 where nothing is known."""
        return self.units / self.seconds if self.seconds > 0 else 0.0


NOTHING = Pace()


def measured(pace: Pace, units: float, took_s: float, now: float) -> Pace:
    """After a run. One of nothing, or in no time, says nothing."""
    if units <= 0 or took_s <= 0:
        return pace
    return Pace(pace.runs + 1, pace.units * _FADE + units, pace.seconds * _FADE + took_s, now)


def believed_s(pace: Pace, now: float) -> float:
    """What a unit costs where that is known well enough to refuse somebody for it; else 0."""
    if pace.runs < MEASUREMENTS or now - pace.at > BELIEVED_S:
        return 0.0
    return pace.cost_s


class Estimates:
    """Paces by (model, kind). Units are tokens; of `generate` those of the prompt and those that it may make,
    so that texts that end early make it cheap; of `read` the prompt's alone; of `load` LOADs."""

    def __init__(self) -> None:
        self._paces: dict[tuple[Hashable, str], Pace] = {}
        self._believed: dict[tuple[Hashable, str], tuple[float, float]] = {}  # a unit's cost, and until when

    def learn(self, model: Hashable, kind: str, units: float, took_s: float, now: float) -> None:
        """A run ended well."""
        at = (model, kind)
        pace = self._paces[at] = measured(self._paces.get(at, NOTHING), units, took_s, now)
        self._believed[at] = believed_s(pace, now), pace.at + BELIEVED_S

    def pace(self, model: Hashable, kind: str) -> Pace:
        """What was measured, believed or not."""
        return self._paces.get((model, kind), NOTHING)

    def cost_s(self, model: Hashable, kind: str) -> float:
        """What a unit costs, believed or not; 0 where nothing is known."""
        found = self._paces.get((model, kind))
        return found.cost_s if found is not None else 0.0

    def work_s(self, model: Hashable, kind: str, units: float, now: float) -> float:
        """Seconds of one lane for that; 0 where it is not known."""
        found = self._believed.get((model, kind))
        return units * found[0] if found is not None and now <= found[1] else 0.0
