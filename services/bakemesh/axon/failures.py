"""What the mesh could not do, as those outside are told: one table for both kinds of route. Pure.

Guarantees: a message of a node is passed on only where it is about the caller's own request; what tells of
nodes, files and engines goes to the log (`Failure.inside`). A Retry-After stands where trying again can help.
Left out: HTTP itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bakemesh.bus.errors import BusError
from bakemesh.inference.errors import AnswerBroken, Closed, InferenceError, NoNode
from bakemesh.protocol.axon.verdicts import HTTP_STATUS, Verdict
from bakemesh.protocol.inference.errors import Code

RETRY_AFTER_S = 1


@dataclass(frozen=True, slots=True)
class Told:
    """A row: `verdict` for synapses; `status` and `code` for OpenAI-style routes (None: the verdict's, the
    error's own); `message`: in place of the error's; `later`: whether trying again can help.
    """

    verdict: Verdict
    message: str | None = None
    status: int | None = None
    code: str | None = None
    later: bool = False


_BUSY = "the mesh cannot take this now; try again"
_BROKEN = "the mesh failed at this request; it is in the gateway's log"

TABLE: dict[str, Told] = {
    Code.QUEUE_FULL: Told(Verdict.OVERLOADED, "the mesh has more work than it can begin in time", later=True),
    Code.LANE_BUSY: Told(Verdict.OVERLOADED, "no engine was free in time", later=True),
    Code.MODEL_LOADING: Told(Verdict.OVERLOADED, "the model is still being loaded", later=True),
    Code.OOM: Told(Verdict.OVERLOADED, "the mesh has no memory for this now", later=True),
    Code.MODULE_RESTARTED: Told(Verdict.OVERLOADED, "the node that had the request is gone", later=True),
    Code.PROBE_REQUIRED: Told(Verdict.OVERLOADED, "the model is in quarantine: it crashed too often"),
    Code.DEADLINE_EXCEEDED: Told(Verdict.TIMED_OUT, "it took longer than the request may take"),
    Code.MODEL_UNKNOWN: Told(
        Verdict.OVERLOADED, "no node of the mesh has the model", status=404, code="model_not_found"
    ),
    Code.TOO_MANY_TOKENS: Told(Verdict.BAD_BODY, status=400, code="context_length_exceeded"),
    Code.BAD_REQUEST: Told(Verdict.BAD_BODY, status=400),
    Code.CAPABILITY_ABSENT: Told(Verdict.BAD_BODY, status=400),
    Code.ENGINE_CRASHED: Told(Verdict.FAILED, "an engine died at this request"),
    Code.INFERENCE_FAILED: Told(Verdict.FAILED, "an engine failed at this request"),
    Code.ARTIFACT_INVALID: Told(Verdict.FAILED, "the model cannot be used: its file is damaged"),
    Code.CONFIG_INVALID: Told(Verdict.FAILED, "the model cannot be used: its settings are wrong"),
    Code.CANCELLED: Told(Verdict.FAILED, "the request was taken back within the mesh"),
    NoNode.CODE: Told(Verdict.OVERLOADED, "no node of the mesh takes this work now", later=True),
    Closed.CODE: Told(Verdict.OVERLOADED, "the gateway is ending", later=True),
    AnswerBroken.CODE: Told(Verdict.FAILED, _BROKEN),
}
_NO_BUS = Told(Verdict.OVERLOADED, _BUSY, code="bus_unreachable", later=True)


@dataclass(frozen=True, slots=True)
class Failure:
    """`message` is for outside, `inside` for the log. `status`: of OpenAI-style routes; a synapse's is its
    verdict's. `retry_after_s`: whole seconds from 1 on.
    """

    verdict: Verdict
    status: int
    code: str
    message: str
    inside: str
    retry_after_s: int | None


def failure_of(error: InferenceError | BusError) -> Failure:
    """How it is told outside. A code that is not in the table: by its class."""
    if isinstance(error, BusError):
        return _failure(_NO_BUS, "bus_unreachable", f"{type(error).__name__}: {error}", None)
    row = TABLE.get(error.code)
    if row is None:
        row = (
            Told(Verdict.OVERLOADED, _BUSY, later=True) if error.transient else Told(Verdict.FAILED, _BROKEN)
        )
    return _failure(row, error.code, str(error), error.retry_after_s, error.error.message)


def _failure(row: Told, code: str, inside: str, after: float | None, message: str = _BROKEN) -> Failure:
    return Failure(
        verdict=row.verdict,
        status=row.status or HTTP_STATUS[row.verdict],
        code=row.code or code,
        message=row.message or message,
        inside=inside,
        retry_after_s=max(RETRY_AFTER_S, math.ceil(after or 0)) if row.later else None,
    )
