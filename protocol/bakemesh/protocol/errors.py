"""What can be wrong with bytes, names and messages. One class a cause; `code` is its name on the wire."""

from __future__ import annotations


class ProtocolError(Exception):
    """Raised when something breaks the contract; the base of every error of this package."""

    code = "malformed_message"


class NameRefused(ProtocolError):
    """Raised when a name cannot be a subject token: it holds a forbidden character, is empty or too long."""

    def __init__(self, what: str, value: object, reason: str) -> None:
        super().__init__(f"{what} {value!r}: {reason}")
        self.what, self.value, self.reason = what, value, reason


class MessageError(ProtocolError):
    """Raised when a payload is no valid message: `type` and `entry` as far as known, and the `reason`."""

    def __init__(self, reason: str, *, type: str | None = None, entry: str | None = None) -> None:  # noqa: A002
        where = " ".join(part for part in (type, f"entry {entry}" if entry else None) if part)
        super().__init__(f"{where}: {reason}" if where else reason)
        self.reason, self.type, self.entry = reason, type, entry


class VersionRefused(MessageError):
    """Raised when an envelope carries another protocol version than the one spoken here."""


class SubjectError(ProtocolError):
    """Raised when a subject is not `<mesh>.<NodeID>.<party>.<key>.<Type>`."""


class IntegrityError(ProtocolError):
    """Raised when a Data stream's seq is not last+1 nor a repeat of last; raised ever after."""

    code = "integrity"
