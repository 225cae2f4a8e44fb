"""The error object: what a caller gets instead of a result, in one form from every service.

    {code, class, retry_after_ms?, safe_to_retry_same_request, message, details?}

`class`: transient, the same request may succeed later; permanent, it will not before somebody changes
something. `safe_to_retry_same_request`: whether sending it again can do harm (it killed an engine, or its
text was partly given). Source: protocol/inference-v1.md, "Errors".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

TRANSIENT, PERMANENT = "transient", "permanent"


class Code(StrEnum):
    """Why there is no result."""

    QUEUE_FULL = "queue_full"  # the node has more than it can begin in time
    DEADLINE_EXCEEDED = "deadline_exceeded"  # the caller's time is over, or will be before the end
    MODEL_LOADING = "model_loading"  # it is on its way into memory, or out of it
    MODEL_UNKNOWN = "model_unknown"  # no such alias here
    TOO_MANY_TOKENS = "too_many_tokens"  # an item is longer than the model's context
    BAD_REQUEST = "bad_request"
    ARTIFACT_INVALID = "artifact_invalid"  # the file is not what its digest says, or no usable model
    CONFIG_INVALID = "config_invalid"
    OOM = "oom"
    ENGINE_CRASHED = "engine_crashed"  # the worker died, hung or broke the protocol
    INFERENCE_FAILED = "inference_failed"  # the engine failed in good order
    PROBE_REQUIRED = "probe_required"  # quarantined: permanent until a probe passes
    CAPABILITY_ABSENT = "capability_absent"  # no engine here can do that
    CANCELLED = "cancelled"
    LANE_BUSY = "lane_busy"  # the one that is wanted is occupied, or none is up
    MODULE_RESTARTED = "module_restarted"  # who had the request is gone, or is going


# Codes that trying later can help; all others are permanent.
PASSING = frozenset(
    {
        Code.QUEUE_FULL,
        Code.DEADLINE_EXCEEDED,
        Code.MODEL_LOADING,
        Code.OOM,
        Code.ENGINE_CRASHED,
        Code.INFERENCE_FAILED,
        Code.LANE_BUSY,
        Code.MODULE_RESTARTED,
    }
)


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """An error as a value. `code` may be one that this side does not know yet."""

    code: str
    message: str
    kind: str = PERMANENT  # the entry `class`
    safe_to_retry: bool = True
    retry_after_ms: int | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def error_of(
    code: Code,
    message: str,
    *,
    safe_to_retry: bool = True,
    retry_after_ms: int | None = None,
    **details: Any,
) -> ErrorObject:
    """An error with the class that its code has."""
    kind = TRANSIENT if code in PASSING else PERMANENT
    told = {name: value for name, value in details.items() if value is not None}
    return ErrorObject(str(code), message, kind, safe_to_retry, retry_after_ms, told)
