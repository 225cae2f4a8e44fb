"""What the host refuses."""

from __future__ import annotations


class NotYours(Exception):
    """Raised when a component of that name has another owner in this start of the node."""


class CannotRun(Exception):
    """Raised when this installation lacks what the component needs."""


class Forgotten(Exception):
    """Raised when a component was removed before it could take an event."""
