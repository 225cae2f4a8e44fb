"""What goes wrong with a synapse before anybody could work on it.

SynapseError
├── MissingHeader           a required header is absent
├── InvalidHeaderValue      a header is there and cannot be read, or stands there twice
├── DeserializationFailed   a body or a chunk is not what its class says
│   └── InvalidTensor       a tensor is none, or one that nobody should open
└── NotVerified             who sent it could not be proven; `verdict` says which of the reasons
"""

from __future__ import annotations

from bakemesh.protocol.axon.verdicts import Verdict

_LONGEST_KEY = 80  # a name comes from whoever sent it, and a message goes into a header and a log


class SynapseError(Exception):
    """Base of all of them."""


class MissingHeader(SynapseError):
    """Raised when a required header is absent."""

    def __init__(self, key: str) -> None:
        super().__init__(f"missing required header: {key[:_LONGEST_KEY]}")
        self.key = key


class InvalidHeaderValue(SynapseError):
    """Raised when a header is there and its value cannot be read; `source` says why."""

    def __init__(self, key: str, source: str | Exception) -> None:
        super().__init__(f"invalid header value for {key[:_LONGEST_KEY]}: {source}")
        self.key, self.source = key, source


class DeserializationFailed(SynapseError):
    """Raised when a body or a chunk is not what its class says."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"deserialization failed: {reason}")
        self.reason = reason


class InvalidTensor(DeserializationFailed):
    """Raised when a tensor's parts do not fit one another, or it holds what is never opened (objects)."""


class NotVerified(SynapseError):
    """Raised when it could not be proven who sent a request, or for whom."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict, self.reason = verdict, reason
