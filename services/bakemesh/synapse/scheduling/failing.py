"""What follows where a lane has no result: pure.

A crash is repeated once, and nothing that was repeated before, here or by somebody upstream, is; nothing of
which the caller has seen a part. A lane that did not take the request is no repetition: another one is asked.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from bakemesh.protocol.inference.errors import Code, ErrorObject
from bakemesh.synapse.lanes.base import LaneFailed

_NOT_HERE = frozenset({Code.LANE_BUSY, Code.PROBE_REQUIRED})
_NOT_BEGUN = frozenset({Code.MODULE_RESTARTED, Code.MODEL_LOADING})


class Then(StrEnum):
    """What becomes of the items."""

    REPEAT = "repeat"  # alone, elsewhere where there is an elsewhere
    ELSEWHERE = "elsewhere"  # back to their place in the queue
    END = "end"


def then(failed: LaneFailed, *, attempt: int, seen: bool) -> Then:
    """`attempt`: of the items that ran. `seen`: the caller has a token of it."""
    code = failed.error.code
    if code in _NOT_HERE or (code in _NOT_BEGUN and not failed.begun):
        return Then.ELSEWHERE
    if failed.crashed and attempt == 0 and not seen:
        return Then.REPEAT
    return Then.END


def told(failed: LaneFailed, *, seen: bool) -> ErrorObject:
    """What the caller is told: of a text that was partly given, that asking again gives it again."""
    return replace(failed.error, safe_to_retry=False) if seen else failed.error
