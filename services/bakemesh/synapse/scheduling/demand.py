"""How much of the lanes each model has lately needed: pure, but for its memory.

Demand is measured in lanes: 1.0 is a lane that did nothing else for the last ten seconds or so.
"""

from __future__ import annotations

from collections.abc import Hashable

_TAU_S = 10.0


class Demand:
    """Busy seconds by model, fading."""

    def __init__(self) -> None:
        self._sums: dict[Hashable, tuple[float, float]] = {}

    def used(self, model: Hashable, busy_s: float, now: float) -> None:
        """A lane worked for it."""
        self._sums[model] = (self._at(model, now) + busy_s, now)

    def lanes(self, model: Hashable, now: float) -> float:
        """As many lanes as it kept busy."""
        return self._at(model, now) / _TAU_S

    def _at(self, model: Hashable, now: float) -> float:
        known, at = self._sums.get(model, (0.0, now))
        return float(known * 2.718281828459045 ** (-(max(0.0, now - at)) / _TAU_S))
