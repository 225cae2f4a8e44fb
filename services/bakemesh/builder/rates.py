"""How often an issuer may ask: a token bucket, pure, its clock an argument."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_second` on the long run, `burst` at once."""

    per_second: float
    burst: float


@dataclass(slots=True)
class Buckets:
    """One bucket an issuer. Memory is bounded: issuers whose bucket is full again are forgotten."""

    rate: Rate
    most: int = 10_000
    _levels: dict[str, tuple[float, float]] = field(default_factory=dict)  # issuer → (tokens, at)

    def wait_s(self, issuer: str, now: float) -> float:
        """Takes a token and returns 0, or takes none and returns how many seconds until there is one."""
        tokens, at = self._levels.get(issuer, (self.rate.burst, now))
        tokens = min(self.rate.burst, tokens + max(0.0, now - at) * self.rate.per_second)
        if tokens < 1:
            self._levels[issuer] = (tokens, now)
            return (1 - tokens) / self.rate.per_second
        self._levels[issuer] = (tokens - 1, now)
        if len(self._levels) > self.most:
            self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        full = self.rate.burst / self.rate.per_second
        self._levels = {who: level for who, level in self._levels.items() if now - level[1] < full}
        while len(self._levels) > self.most:
            self._levels.pop(next(iter(self._levels)))
