"""What a connection tells of itself while it lives. A service handles these: a reconnect means that core
messages may be missing and streams are to be read again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The link is down; it is being made again, for ever."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The link is up again and every subscription is back. What was published in between is not coming any
    more.
    """

    url: str


@dataclass(frozen=True, slots=True)
class SlowConsumer:
    """Messages of a subscription were dropped because its handler did not keep up; `dropped` counts from the
    start.
    """

    pattern: str
    dropped: int


@dataclass(frozen=True, slots=True)
class Denied:
    """The server refused a publish or a subscription. It names the subject in lower case only."""

    operation: str
    subject: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is gone for good, and nobody here closed it: the process should end with this reason."""

    reason: str


Event = Disconnected | Reconnected | SlowConsumer | Denied | Closed
