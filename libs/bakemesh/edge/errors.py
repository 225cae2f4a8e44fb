"""What goes wrong with what an author wrote, and what a handler raises to end a request in a way of its own.

AttachRefused     a function cannot serve; told where it is attached, not at the first request
FileRefused       a Python file for the gateway defines no routes
HandlerRefused    a handler ends its request with a verdict and a reason that the client may read
HandlerFailed     a handler returned what is no answer
"""

from __future__ import annotations

from bakemesh.protocol.axon.verdicts import Verdict


class AttachRefused(TypeError):
    """Raised when a function cannot serve a synapse: says which, and what would be right."""


class FileRefused(ValueError):
    """Raised when a Python file for the gateway is none: says which, and what would be right."""


class HandlerRefused(Exception):
    """Raised by a handler to end its request with this verdict and this reason, which the client reads.
    `retry_after_s`: when it may come again, where that helps.
    """

    def __init__(self, verdict: Verdict, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.verdict, self.reason, self.retry_after_s = verdict, reason, retry_after_s


class HandlerFailed(Exception):
    """Raised when a handler returned what is no answer of its synapse class."""
