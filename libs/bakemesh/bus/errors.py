"""What can go wrong between this process and the bus: one class a cause.

nats-py's exceptions and JetStream's error codes are mapped here, once, at the border (`store_error`); nothing
else in the project catches them. `StoreError` and its children are answers of a JetStream server; the rest is
the connection's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any


class BusError(Exception):
    """Raised when the bus cannot do what was asked; the base of every error of this package."""


class BusUnreachable(BusError):
    """Raised when no server answers in time: names the URLs that were tried and each reason that was seen."""

    def __init__(self, servers: Sequence[str], reasons: Sequence[str], seconds: float) -> None:
        why = "; ".join(reasons) or "no answer"
        super().__init__(
            f"no NATS server reached within {seconds:g} s at {', '.join(servers)}: {why}. "
            "Start one (`bakemesh up`), or give the right address"
        )
        self.servers, self.reasons = tuple(servers), tuple(reasons)


class AccessDenied(BusError):
    """Raised when the server refuses the credentials, or the identity may not use a subject.

    `operation` is connect, publish or subscribe; `subject` is None for connect.
    """

    def __init__(
        self, operation: str, subject: str | None = None, *, who: str = "", reason: str = ""
    ) -> None:
        what = f"{operation} {subject}" if subject else operation
        whose = f"{who} may not" if who else "not allowed to"
        super().__init__(f"{whose} {what}{': ' + reason if reason else ''}")
        self.operation, self.subject = operation, subject


class BadCredentials(BusError):
    """Raised when the credentials themselves cannot be used: an unreadable file, a malformed seed, a missing
    package.
    """


class NotConnected(BusError):
    """Raised when the link to the server is down, so that nothing was sent."""


class BusClosed(BusError):
    """Raised when the connection has been closed for good, by `close` or by the server."""


class MessageTooLarge(BusError):
    """Raised when a payload is larger than the server takes."""

    def __init__(self, subject: str, size: int, limit: int) -> None:
        super().__init__(f"{subject}: {size} bytes; the server takes at most {limit} (max_payload)")
        self.subject, self.size, self.limit = subject, size, limit


class NoResponder(BusError):
    """Raised when nobody listens where a request went."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"nobody answers on {subject}")
        self.subject = subject


class RequestTimeout(BusError):
    """Raised when a request was sent and no answer came in time: it may have been carried out all the
    same.
    """

    def __init__(self, subject: str, seconds: float) -> None:
        super().__init__(
            f"no answer on {subject} within {seconds:g} s; it may have been carried out all the same"
        )
        self.subject, self.seconds = subject, seconds


class ServiceFailed(BusError):
    """Raised when the service at the other end answered that it failed, or that it could not read the
    message.
    """

    def __init__(self, subject: str, code: str, description: str) -> None:
        super().__init__(f"{subject} answered {code}: {description}")
        self.subject, self.code, self.description = subject, code, description


class ReplyRefused(BusError):
    """Raised when an answer came that is no message."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(f"the answer on {subject} is no message: {reason}")
        self.subject, self.reason = subject, reason


class ServerFailed(BusError):
    """Raised when an embedded server cannot be started or ends by itself; carries the last lines of
    its log.
    """

    def __init__(self, reason: str, log_lines: Sequence[str] = ()) -> None:
        tail = "".join(f"\n    {line}" for line in log_lines)
        super().__init__(f"{reason}{'; its last words:' + tail if tail else ''}")
        self.reason, self.log_lines = reason, tuple(log_lines)


class ListenRefused(ServerFailed):
    """Raised when an embedded server would be open to others and ask nobody who he is; it is not started."""


class StoreError(BusError):
    """Raised when JetStream refuses; `err_code` is its own number, 0 where it gave none."""

    def __init__(self, what: str, description: str, err_code: int = 0) -> None:
        number = f" ({err_code})" if err_code else ""
        super().__init__(f"{what}: {description}{number}")
        self.what, self.description, self.err_code = what, description, err_code


class StoreFull(StoreError):
    """Raised when a stream has no room for a message. The message may have reached core subscribers all the
    same.
    """


class WrongSequence(StoreError):
    """Raised when a compare-and-set fails; `last` is what the server has, None where it does not say a
    number.
    """

    def __init__(self, what: str, description: str, err_code: int = 0) -> None:
        super().__init__(what, description, err_code)
        found = re.search(r":\s*(\d+)\s*$", description)
        self.last = int(found.group(1)) if found else None


class NoRoom(StoreError):
    """Raised when the server cannot reserve the space that a new stream asks for."""


class NotFound(StoreError):
    """Raised when a stream, a consumer, a message or a key does not exist."""


class NameTaken(StoreError):
    """Raised when a stream or consumer of that name exists with other settings, or a subject is stored
    elsewhere.
    """


class NoStore(StoreError):
    """Raised when nobody stores the subject, or the server has no JetStream."""


class StoreUnavailable(StoreError):
    """Raised when JetStream cannot answer now: no leader, starting up, or the link to it is down. Try
    again.
    """


class StoreTimeout(StoreUnavailable):
    """Raised when no acknowledgement came in time: the message may have been stored all the same."""


_CAUSES: Mapping[int, type[StoreError]] = {
    10077: StoreFull,  # the store refused: bytes, messages or messages of a subject
    10122: StoreFull,  # the account's or the server's resources are used up
    10070: WrongSequence,  # last message id
    10071: WrongSequence,  # last sequence
    10164: WrongSequence,  # last sequence, without the number
    10047: NoRoom,
    10028: NoRoom,
    10023: NoRoom,
    10059: NotFound,  # stream
    10014: NotFound,  # consumer
    10037: NotFound,  # message
    10058: NameTaken,
    10065: NameTaken,
    10013: NameTaken,
    10148: NameTaken,
    10039: NoStore,
    10076: NoStore,
    10008: StoreUnavailable,
    10009: StoreUnavailable,
    10005: StoreUnavailable,
}


def store_error(what: str, error: Mapping[str, Any]) -> StoreError:
    """The typed error of a JetStream answer's `error` map; `what` names the request in the message."""
    number = int(error.get("err_code", 0) or 0)
    status = int(error.get("code", 0) or 0)
    description = str(error.get("description", "refused without a word"))
    cause = _CAUSES.get(number)
    if cause is None:
        cause = {404: NotFound, 503: StoreUnavailable}.get(status, StoreError)
    return cause(what, description, number)
