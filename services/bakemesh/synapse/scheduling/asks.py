"""What goes into the core beside ids, and what comes out: callers' wishes, rows, failures, numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.workerpool.models import ModelKey

CONTROL, INTERACTIVE, BULK = CLASSES = ("control", "interactive", "bulk")
TAKEN_BACK = error_of(Code.CANCELLED, "the caller took it back")


class Failed(Exception):
    """Raised when a request has no result, or no further one; `error` is for its caller."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True, kw_only=True)
class Ask:
    """One request's wishes, and the handle to take it back. `deadline`: when its caller's time is over, by
    the core's clock. `work_class`: control, interactive, bulk. `attempt`: 1 where somebody repeated it
    already. `size`: bytes that it holds until its end. `trace`: its traceparent, where somebody traces."""

    deadline: float
    work_class: str = INTERACTIVE
    priority: int = 0
    attempt: int = 0
    size: int = 0
    trace: str | None = None
    cancelled: bool = field(default=False, init=False)
    _on_cancel: Callable[[], None] | None = field(default=None, init=False, repr=False)

    def cancel(self) -> None:
        """Takes it back: a running generation ends with what there is, anything else as `cancelled`."""
        if not self.cancelled:
            self.cancelled = True
            if self._on_cancel is not None:
                self._on_cancel()

    def on_cancel(self, act: Callable[[], None] | None) -> None:
        """The core's: what `cancel` does; at once where it was called before."""
        self._on_cancel = act
        if act is not None and self.cancelled:
            act()


@dataclass(slots=True)
class Rows:
    """Vectors of `n` items from the caller's item `first` on: n × dims f32 LE."""

    first: int
    n: int
    dims: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class CoreStatus:
    """`waitms`: before new interactive work would begin; the limit while no lane is up. `rate`: tokens a
    second that the lanes do together, 0 while nothing was measured. `backlog`: tokens that wait or run.
    `queued`: requests that have not begun. `lanes`: those that are up; `busy`: those of them that work."""

    waitms: int
    rate: float
    backlog: int
    queued: int
    bytesinflight: int
    lanes: int
    busy: int
    loaded: frozenset[ModelKey]


@dataclass(frozen=True, slots=True)
class Ran:
    """A run on a lane that gave a result, for whoever measures. `callers`: whose items it held. `queued_s`:
    how long the first of them had waited."""

    kind: str
    model: ModelKey
    lane: str
    callers: int
    items: int
    tokens: int
    queued_s: float
    took_s: float
