"""What can be wrong on the link, split by whose fault it is.

WorkerLinkError
├── LocalError     this end was about to break the protocol
└── PeerError      the other end broke it: nothing it says can be trusted, the connection ends
    ├── FrameTooLarge, FrameCut, HeaderBroken
    └── OutOfStep, VersionRefused, NonceRefused, NotAccepted
"""

from __future__ import annotations


class WorkerLinkError(Exception):
    """Base of all errors of the link."""


class LocalError(WorkerLinkError):
    """Raised when this end is asked to send what the protocol does not allow now. Nothing was sent."""


class PeerError(WorkerLinkError):
    """Raised when the peer broke the protocol."""


class FrameTooLarge(PeerError):
    """Raised when a frame is announced that is larger than the agreed limit, before it is read."""

    def __init__(self, announced: int, limit: int) -> None:
        super().__init__(f"a frame of {announced} bytes is announced; at most {limit} were agreed")
        self.announced, self.limit = announced, limit


class FrameCut(PeerError):
    """Raised when the connection ends inside a frame, or where a raw frame is still to come."""


class HeaderBroken(PeerError):
    """Raised when a control frame is no JSON object with a type."""


class OutOfStep(PeerError):
    """Raised when a message may not come now, or answers another request than the one in flight."""


class VersionRefused(PeerError):
    """Raised when the peer speaks another version."""

    def __init__(self, theirs: object, ours: int) -> None:
        super().__init__(f"the peer speaks version {theirs!r}; this end speaks {ours}")
        self.theirs, self.ours = theirs, ours


class NotAccepted(PeerError):
    """Raised when a host's HELLO_ACK says no."""


class NonceRefused(PeerError):
    """Raised when a HELLO carries another nonce than the one the worker was started with."""


class BadHeader(ValueError):
    """Raised when a header of a known type lacks a field or has a wrong one: an ERR names it.

    `code` of that ERR: `bad_request`, or `config_invalid` where runtime_config is no map of text to text.
    """

    def __init__(
        self, type_: str, req_id: str | None, field: str, problem: str, code: str = "bad_request"
    ) -> None:
        super().__init__(f"{type_}: {field} {problem}")
        self.type, self.req_id, self.field, self.code = type_, req_id, field, code
