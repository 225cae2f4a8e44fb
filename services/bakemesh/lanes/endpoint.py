"""What `$SRV` shows of one verb of one lane: requests, errors, time."""

from __future__ import annotations

from bakemesh.protocol.inference.errors import ErrorObject


class Endpoint:
    """The counts of a verb. `busy_ns`: from each request to its last answer."""

    __slots__ = ("busy_ns", "errors", "last_error", "pattern", "queue", "requests")

    def __init__(self, pattern: str) -> None:
        self.pattern, self.queue = pattern, ""
        self.requests = self.errors = self.busy_ns = 0
        self.last_error = ""

    def ended(self, seconds: float, error: ErrorObject | None) -> None:
        """One of its requests did."""
        self.requests += 1
        self.busy_ns += int(seconds * 1e9)
        if error is not None:
            self.errors += 1
            self.last_error = f"{error.code}: {error.message}"[:200]
