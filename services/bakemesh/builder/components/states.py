"""The states of a component: one table, no logic elsewhere.

               ┌────────────── LAUNCH (its pause or its quarantine is over, Start) ────────────┐
               ↓                                                                               │
 stopped ─→ starting ── READY ──→ ready ── SICK (probes missed) ──→ unhealthy                  │
    ↑          │                    │                                  │                       │
    │          └──────┬─────────────┴──────────────────┬───────────────┘                       │
    │                 │ it ended: its policy says …     │ STOP                                  │
    │                 ├─ PAUSE ──────→ backoff ─────────│──────────────────────────────────────→┤
    │                 ├─ QUARANTINE ─→ quarantined ─────│──────────────────────────────────────→┤
    │                 └─ LET_BE ─────→ ended ───────────│───────── Start only ─────────────────→┤
    │                        │                          ↓                                       │
    └──────── HALT ──────────┴───────────────────── stopping ── LAUNCH (a changed spec) ───────→┘

A key that the table lacks *is* the violation: `move` raises and changes nothing. Only starting, ready,
unhealthy and stopping have an instance: a process that may be alive.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a component is; the words go on the wire."""

    STARTING = "starting"  # an instance is journaled, and launched or about to be
    READY = "ready"
    UNHEALTHY = "unhealthy"  # it missed its probes and is being ended, for its policy to judge
    BACKOFF = "backoff"  # it ended and is started again after a pause
    QUARANTINED = "quarantined"  # it ended too often; one start is tried now and then
    STOPPING = "stopping"  # somebody wants it ended, or changed
    STOPPED = "stopped"  # somebody wanted it so, or the node was started anew
    ENDED = "ended"  # it ended, and its policy lets it be


class Move(StrEnum):
    """What changes it."""

    LAUNCH = "launch"
    READY = "ready"
    SICK = "sick"
    PAUSE = "pause"
    QUARANTINE = "quarantine"
    LET_BE = "let-be"
    STOP = "stop"
    HALT = "halt"  # nothing of it lives, and nothing is to


class MoveError(Exception):
    """Raised when a move does not belong to a state."""


ALIVE = frozenset({State.STARTING, State.READY, State.UNHEALTHY, State.STOPPING})
_RUNNING = (State.STARTING, State.READY, State.UNHEALTHY)
_RESTING = (State.BACKOFF, State.QUARANTINED, State.ENDED, State.STOPPED)

TRANSITIONS: dict[tuple[State, Move], State] = {
    **{(state, Move.LAUNCH): State.STARTING for state in (*_RESTING, State.STOPPING, State.STARTING)},
    (State.STARTING, Move.READY): State.READY,
    (State.READY, Move.SICK): State.UNHEALTHY,
    **{(state, Move.PAUSE): State.BACKOFF for state in _RUNNING},
    **{(state, Move.QUARANTINE): State.QUARANTINED for state in _RUNNING},
    **{(state, Move.LET_BE): State.ENDED for state in _RUNNING},
    **{(state, Move.STOP): State.STOPPING for state in _RUNNING},
    **{(state, Move.HALT): State.STOPPED for state in (*_RESTING, State.STOPPING)},
}


def move(state: State, by: Move) -> State:
    """The next state. Raises MoveError."""
    try:
        return TRANSITIONS[state, by]
    except KeyError:
        raise MoveError(f"a component that is {state} cannot {by}") from None
