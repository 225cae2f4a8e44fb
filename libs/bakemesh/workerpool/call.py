"""One caller's wishes for one request, and the handle to take it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Call:
    """`within_s`: the caller's deadline; None: the settings'. `queue_s`: how long it may wait for a worker,
    0: not at all. `lane`: this worker and no other. `attempt`: 1 where somebody upstream repeats it: then it
    is not repeated here. `traces`: whom it is for, as traceparents, where somebody traces. For one request
    only, with all its runs."""

    within_s: float | None = None
    queue_s: float | None = None
    lane: str | None = None
    attempt: int = 0
    traces: tuple[str, ...] = ()
    _cancels: list[Callable[[], None]] = field(default_factory=list, repr=False)
    _cancelled: bool = field(default=False, repr=False)
    _until: float | None = field(default=None, repr=False)

    def cancel(self) -> None:
        """Takes it back: a queued one ends as Cancelled; of a running generation comes what there is, with
        `finish_reason: cancelled`; anything else ends as Cancelled, and its worker finishes for nobody."""
        self._cancelled = True
        for cancel in tuple(self._cancels):
            cancel()

    def bind(self, cancel: Callable[[], None]) -> None:
        """The pool's: what `cancel` does, beside what it does already."""
        self._cancels.append(cancel)
        if self._cancelled:
            cancel()

    def unbind(self, cancel: Callable[[], None]) -> None:
        """The pool's: that run is over; whatever it holds is let go."""
        self._cancels.remove(cancel)

    def until(self, now: float, default_s: float) -> float:
        """The pool's: when the caller's time is over; it began at the first asking."""
        if self._until is None:
            self._until = now + (default_s if self.within_s is None else self.within_s)
        return self._until
