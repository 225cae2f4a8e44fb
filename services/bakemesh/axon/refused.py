"""How a request ends before its handler had it."""

from __future__ import annotations

from bakemesh.protocol.axon.verdicts import Verdict


class Refused(Exception):
    """Raised when a request is not served; `reason` is what the client reads. `unsigned`: the answer is not
    signed, since it must cost nothing.
    """

    def __init__(
        self, verdict: Verdict, reason: str, *, retry_after_s: float | None = None, unsigned: bool = False
    ) -> None:
        super().__init__(reason)
        self.verdict, self.reason = verdict, reason
        self.retry_after_s, self.unsigned = retry_after_s, unsigned


class ClientGone(Exception):
    """Raised when the client closed its connection before its request was whole."""
