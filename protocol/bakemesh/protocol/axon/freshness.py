"""Which nonces are fresh, and what makes a request the same one again. Pure: `now_ns` is given.

Freshness depends on nothing that is not signed: every profile has the same window.
"""

from __future__ import annotations

from dataclasses import dataclass

BACK_MS = 10_000
AHEAD_MS = 2_000
_NS_FROM = 10**15  # as milliseconds this is the year 33658, as nanoseconds January 1970


@dataclass(frozen=True, slots=True)
class Window:
    """How old and how far ahead a nonce may be, in milliseconds."""

    back_ms: int = BACK_MS
    ahead_ms: int = AHEAD_MS

    @property
    def life_ns(self) -> int:
        """How long a nonce that was seen must be remembered, counted from when it was made."""
        return (self.back_ms + self.ahead_ms) * 1_000_000

    def problem(self, nonce: int, now_ns: int) -> str | None:
        """Why the nonce is not fresh; None: it is."""
        age_ms = (now_ns - in_ns(nonce)) / 1e6
        if age_ms > self.back_ms:
            return f"Nonce is too old: {age_ms / 1000:.2f} s, {self.back_ms / 1000:g} s are allowed"
        if -age_ms > self.ahead_ms:
            return f"Nonce is {-age_ms / 1000:.2f} s ahead, {self.ahead_ms / 1000:g} s are allowed"
        return None


def in_ns(nonce: int) -> int:
    """A nonce as nanoseconds since the epoch: milliseconds and nanoseconds are told apart by magnitude."""
    return nonce if nonce >= _NS_FROM else nonce * 1_000_000
