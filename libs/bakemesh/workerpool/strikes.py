"""Requests that killed a worker, by digest: suspects and poison. A value; time comes as `now`.

Left out: what makes a digest (the model, the kind, its options, the ids), and when it is noted (`charging`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST = 10_000  # digests; the oldest is let go


@dataclass(slots=True)
class Strikes:
    """What is remembered for `life_s`, by digest."""

    life_s: float = 900.0
    _noted: dict[str, tuple[float, bool]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is remembered: while nothing is, nobody has to make a digest."""
        return bool(self._noted)

    def suspect(self, digest: str, now: float) -> bool:
        """Whether it killed a worker before, or was in a batch that did."""
        return self._read(digest, now) is not None

    def poison_for(self, digest: str, now: float) -> float | None:
        """For how many seconds it is refused; None: it is not."""
        found = self._read(digest, now)
        return found[0] + self.life_s - now if found is not None and found[1] else None

    def note(self, digest: str, now: float, *, poison: bool) -> None:
        """It struck."""
        found = self._noted.pop(digest, None)
        self._noted[digest] = (now, poison or (found is not None and found[1]))
        while len(self._noted) > MOST:
            del self._noted[next(iter(self._noted))]

    def clear(self, digest: str) -> None:
        """It was run, and nobody died."""
        self._noted.pop(digest, None)

    def forget(self, now: float) -> None:
        """Lets go of what is over."""
        for digest, (at, _) in list(self._noted.items()):
            if now - at >= self.life_s:
                del self._noted[digest]

    def _read(self, digest: str, now: float) -> tuple[float, bool] | None:
        found = self._noted.get(digest)
        return found if found is not None and now - found[0] < self.life_s else None
