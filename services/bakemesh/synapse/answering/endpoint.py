"""What `$SRV` shows of one verb: requests, errors, time."""

from __future__ import annotations

from bakemesh.bus.discovery import Counts


class Endpoint(Counts):
    """The counts of a verb, over all its subscriptions."""

    __slots__ = ("verb",)

    def __init__(self, verb: str, pattern: str, queue: str = "") -> None:
        super().__init__(pattern, queue)
        self.verb = verb
