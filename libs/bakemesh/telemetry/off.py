"""The interface, and what it does where telemetry is off: nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

Value = str | int | float | bool
Attributes = Mapping[str, Value]
Observed = Iterable[tuple[float, Attributes]]


class SpanKind(StrEnum):
    """Where a span stands between two processes."""

    CLIENT = "client"  # asks another
    SERVER = "server"  # is asked
    INTERNAL = "internal"


class Span:
    """A piece of work with a begin and an end. This one is nowhere."""

    __slots__ = ()

    @property
    def traceparent(self) -> str | None:
        """What to send along, so that spans elsewhere are below this one; None: nothing."""
        return None

    def note(self, attributes: Attributes) -> None:
        """Adds to what is told of it."""

    def end(self, problem: str | None = None) -> None:
        """It is over; `problem`: it failed, and why. Once."""


NO_SPAN = Span()


class Telemetry:
    """What a process tells. This one tells nothing; whether that is so, says `on`."""

    on = False

    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        parent: str | None = None,
        links: Sequence[str] = (),
        attributes: Attributes | None = None,
    ) -> Span:
        """Begins a span. `parent`, `links`: traceparents; one that is malformed counts as none. Without a
        parent it is below the span that is current in OpenTelemetry's own context, if any.
        """
        del name, kind, parent, links, attributes
        return NO_SPAN

    def count(self, name: str, more: float = 1, attributes: Attributes | None = None) -> None:
        """Adds to a counter of `instruments`. Raises KeyError for a name that is none."""

    def record(self, name: str, value: float, attributes: Attributes | None = None) -> None:
        """One value of a distribution of `instruments`. Raises KeyError for a name that is none."""

    def watch(self, name: str, read: Callable[[], Observed]) -> None:
        """A gauge of `instruments` whose values `read` gives whenever somebody collects; from another
        thread, so it must only look.
        """

    def close(self, within_s: float = 2.0) -> None:
        """Sends what is left, within this time; blocks. Idempotent."""


OFF = Telemetry()
