"""What an error object says of a lane's request: was it begun, and may it be run once more. Pure.

One table for lanes here and elsewhere: on the bus a lane tells no more than its error object.
"""

from __future__ import annotations

from dataclasses import replace

from bakemesh.protocol.inference.errors import TRANSIENT, Code, ErrorObject
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.workerpool import WorkerPoolError, error_object

# The worker was not given the request: it was refused before, or its model could not be had.
NOT_BEGUN = frozenset(
    {
        Code.LANE_BUSY,
        Code.PROBE_REQUIRED,
        Code.MODEL_LOADING,
        Code.MODEL_UNKNOWN,
        Code.ARTIFACT_INVALID,
        Code.CONFIG_INVALID,
        Code.CAPABILITY_ABSENT,
    }
)
_KILLED = ("timeout", "cancel")  # the host did it, for the request's own sake


def failed(error: ErrorObject, *, seen: bool = False) -> LaneFailed:
    """The failure that the object tells. `seen`: a part of its text was given already."""
    if seen:
        error = replace(error, safe_to_retry=False)
    return LaneFailed(error, crashed=_crashed(error), begun=error.code not in NOT_BEGUN)


def of_pool(error: WorkerPoolError, *, seen: bool = False) -> LaneFailed:
    """The failure that a pool's error is."""
    return failed(error_object(error), seen=seen)


def _crashed(error: ErrorObject) -> bool:
    if error.code == Code.MODULE_RESTARTED:
        return True
    return (
        error.code == Code.ENGINE_CRASHED
        and error.kind == TRANSIENT
        and error.details.get("stage") not in _KILLED
    )


def died(failure: LaneFailed) -> bool:
    """Whether a worker ended under the request, for whatever reason: by itself, or killed for its silence.
    Not where the request was refused for a crash of before: of that there is no end to tell.
    """
    error = failure.error
    ended = "signal" in error.details or "exit_code" in error.details
    return failure.crashed or (error.code == Code.ENGINE_CRASHED and ended)
