"""What to do when a request was not answered with a result: a table, and how long to wait.

    the work was not begun (queue_full, model_unknown … and nobody listens there)   → another node
    the node was lost under it, first attempt, safe to repeat, no token given       → once more, attempt 1
    everything else                                                                 → the caller is told

Where every node has declined: wait as long as they ask for, then once more to those whose reason may pass, as
long as the caller's time lasts. Pure. Source: protocol/inference-v1.md, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from bakemesh.inference.errors import InferenceError, NodeGone
from bakemesh.protocol.inference.errors import Code

DECLINES = frozenset(
    {
        Code.QUEUE_FULL,
        Code.MODEL_UNKNOWN,
        Code.MODEL_LOADING,
        Code.PROBE_REQUIRED,
        Code.LANE_BUSY,
        Code.MODULE_RESTARTED,
    }
)
LEAST_PAUSE_S = 0.01
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0  # where nobody says how long: doubling


class Then(Enum):
    """What follows."""

    ELSEWHERE = "another node; it was not begun"
    REPEAT = "once more, marked as a repetition"
    TELL = "the caller is told"


def judge(error: InferenceError, *, attempt: int, repeatable: bool, begun: bool) -> Then:
    """`repeatable`: doing it twice does no harm; `begun`: a part of the text was given already."""
    if begun:
        return Then.TELL
    if isinstance(error, NodeGone):
        if not error.reached:
            return Then.ELSEWHERE
        return Then.REPEAT if repeatable and attempt == 0 else Then.TELL
    return Then.ELSEWHERE if error.code in DECLINES else Then.TELL


def pause_s(declined: Iterable[InferenceError], round_: int, draw: float) -> float | None:
    """How long to wait until somebody who declined is asked again; None where nobody's reason passes by
    itself. `round_` counts from 0; `draw` (0 to 1) keeps callers apart.
    """
    passing = [error for error in declined if error.transient]
    if not passing:
        return None
    told = [error.retry_after_s for error in passing if error.retry_after_s is not None]
    pause = min(told) if told else min(FIRST_PAUSE_S * 2 ** min(round_, 10), LONGEST_PAUSE_S)
    return max(LEAST_PAUSE_S, pause) * (1 + draw / 4)
