"""The lifecycle of a bake: one table, no logic elsewhere.

 queued → running ── Pause, at the boundary ──→ paused ── Start ──→ running
             │  └── step failed, on-failure=hold ──→ held ── SkipStep | RetryStep ──→ running
             ├─ all steps done → succeeded
             ├─ step failed    → failed
             └─ Cancel, from any non-terminal state, at once → cancelled

A key that the table lacks *is* the violation: `step` raises and changes nothing.
"""

from __future__ import annotations

from enum import StrEnum

from bakemesh.protocol.errors import ProtocolError


class Phase(StrEnum):
    """Where a bake is."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    HELD = "held"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Event(StrEnum):
    """What moves it."""

    BEGIN = "begin"  # a place among max-bakes is free
    REST = "rest"  # a Pause is pending and the boundary is reached
    RESUME = "resume"  # Start
    HOLD = "hold"  # a step failed under on-failure="hold"
    LEAVE_HOLD = "leave-hold"  # SkipStep or RetryStep on a held step
    FINISH = "finish"  # all steps are done
    FAIL = "fail"
    CANCEL = "cancel"


class LifecycleError(ProtocolError):
    """Raised when an event does not belong to a phase."""


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})

TRANSITIONS: dict[tuple[Phase, Event], Phase] = {
    (Phase.QUEUED, Event.BEGIN): Phase.RUNNING,
    (Phase.RUNNING, Event.REST): Phase.PAUSED,
    (Phase.PAUSED, Event.RESUME): Phase.RUNNING,
    (Phase.RUNNING, Event.HOLD): Phase.HELD,
    (Phase.HELD, Event.LEAVE_HOLD): Phase.RUNNING,
    (Phase.RUNNING, Event.FINISH): Phase.SUCCEEDED,
    **{(phase, Event.FAIL): Phase.FAILED for phase in Phase if phase not in TERMINAL},
    **{(phase, Event.CANCEL): Phase.CANCELLED for phase in Phase if phase not in TERMINAL},
}


def step(phase: Phase, event: Event) -> Phase:
    """The next phase. Raises LifecycleError where the table has no such transition."""
    try:
        return TRANSITIONS[phase, event]
    except KeyError:
        raise LifecycleError(f"a bake that is {phase} cannot {event}") from None
