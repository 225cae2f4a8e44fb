"""What a call of the client raises: one class a cause, all under InferenceError.

    InferenceError
    ├─ QueueFull            every node that could do it has more than it can begin in time
    ├─ DeadlineExceeded     the time of the call is over, or would be before its end
    ├─ ModelLoading         the model did not arrive in memory in time
    ├─ ModelUnknown         no node has a model of this alias
    ├─ TooManyTokens        an item is longer than the model's context
    ├─ BadRequest           it contradicts itself, is too large, or is nothing for this model
    ├─ ArtifactInvalid      the model's file cannot be used
    ├─ ConfigInvalid        the model cannot be loaded with its runtime keys
    ├─ OutOfMemory          no memory for the model or the request
    ├─ EngineCrashed        the worker died under it
    ├─ InferenceFailed      the engine failed in good order
    ├─ ProbeRequired        the model is quarantined until a probe passes
    ├─ CapabilityAbsent     no engine there can do that
    ├─ Cancelled            somebody took it back
    ├─ LaneBusy             no engine was free in time
    ├─ ModuleRestarted      the module that had it is gone, or is going
    │   └─ NodeGone         … and said no more: its node, or the link to it, is gone
    ├─ NoNode               there is no node that could be asked
    ├─ AnswerBroken         the answers do not make a whole
    ├─ OtherFailure         a code that this side does not know
    └─ Closed               the client is closed

What passes through unchanged: errors of `bakemesh.bus` (BusUnreachable, AccessDenied, BusClosed …).
Source: protocol/inference-v1.md, section 4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from bakemesh.protocol.inference.errors import PERMANENT, TRANSIENT, Code, ErrorObject, error_of


class InferenceError(Exception):
    """Raised when a call has no result; the base of every error of this package.

    `error` is the error object as it came, `node_id` the node that sent it (None: it arose here).
    """

    CODE: ClassVar[str] = ""

    def __init__(self, error: ErrorObject, node_id: str | None = None) -> None:
        where = f"node {node_id}: " if node_id else ""
        super().__init__(f"{where}{error.message}")
        self.error, self.node_id = error, node_id

    @property
    def code(self) -> str:
        """The error object's code."""
        return self.error.code

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later."""
        return self.error.kind == TRANSIENT

    @property
    def safe_to_retry(self) -> bool:
        """Whether making the same call again can do no harm."""
        return self.error.safe_to_retry

    @property
    def retry_after_s(self) -> float | None:
        """When it is worth trying again, in seconds; None where nobody said."""
        after = self.error.retry_after_ms
        return None if after is None else after / 1000

    @property
    def details(self) -> dict[str, Any]:
        """What else the node told: stage, signal, exit_code, output, counts …"""
        return self.error.details


class QueueFull(InferenceError):
    """Raised when it would wait longer than a node allows, on every node that was tried."""

    CODE = Code.QUEUE_FULL


class DeadlineExceeded(InferenceError):
    """Raised when the time of the call is over, or would be before its end."""

    CODE = Code.DEADLINE_EXCEEDED


class ModelLoading(InferenceError):
    """Raised when the model is on its way into memory and did not arrive in time."""

    CODE = Code.MODEL_LOADING


class ModelUnknown(InferenceError):
    """Raised when no node that may be asked has a model of this alias."""

    CODE = Code.MODEL_UNKNOWN


class TooManyTokens(InferenceError):
    """Raised when an item is longer than the model's context; the message has both counts."""

    CODE = Code.TOO_MANY_TOKENS


class BadRequest(InferenceError):
    """Raised when the request contradicts itself, is too large, or cannot be run by this model."""

    CODE = Code.BAD_REQUEST


class ArtifactInvalid(InferenceError):
    """Raised when a file is not what its digest says, or no model that can be used."""

    CODE = Code.ARTIFACT_INVALID


class ConfigInvalid(InferenceError):
    """Raised when the model cannot be loaded with its runtime keys."""

    CODE = Code.CONFIG_INVALID


class OutOfMemory(InferenceError):
    """Raised when there is no memory for the model or the request."""

    CODE = Code.OOM


class EngineCrashed(InferenceError):
    """Raised when the worker died, hung or broke its protocol under the request; see `details`."""

    CODE = Code.ENGINE_CRASHED


class InferenceFailed(InferenceError):
    """Raised when the engine failed in good order."""

    CODE = Code.INFERENCE_FAILED


class ProbeRequired(InferenceError):
    """Raised when the model crashed its workers too often: it is quarantined until a probe passes."""

    CODE = Code.PROBE_REQUIRED


class CapabilityAbsent(InferenceError):
    """Raised when no engine on the node can do what was asked."""

    CODE = Code.CAPABILITY_ABSENT


class Cancelled(InferenceError):
    """Raised when the request was taken back by a Cancel that this call did not send."""

    CODE = Code.CANCELLED


class LaneBusy(InferenceError):
    """Raised when no engine was free, or none was up, in time."""

    CODE = Code.LANE_BUSY


class ModuleRestarted(InferenceError):
    """Raised when the module that had the request is gone, or is going, and it must not be repeated."""

    CODE = Code.MODULE_RESTARTED


class NodeGone(ModuleRestarted):
    """Raised when a node was lost under the request: it fell silent, was started anew, nobody listens there,
    or the link was down meanwhile. `reached`: the request may have been begun there.
    """

    def __init__(self, why: str, node_id: str | None = None, *, reached: bool = True) -> None:
        super().__init__(error_of(Code.MODULE_RESTARTED, why, safe_to_retry=not reached), node_id)
        self.reached = reached


class NoNode(InferenceError):
    """Raised when there is no node to ask: none was heard of, or none of them takes work now."""

    CODE = "no_node"

    def __init__(self, why: str) -> None:
        super().__init__(ErrorObject(self.CODE, why, TRANSIENT))


class AnswerBroken(InferenceError):
    """Raised when the answers do not make a whole: rows or tokens are missing, or sizes contradict."""

    CODE = "answer_broken"

    def __init__(self, why: str, node_id: str | None = None) -> None:
        super().__init__(ErrorObject(self.CODE, why, TRANSIENT), node_id)


class OtherFailure(InferenceError):
    """Raised when a node answers a code that this side does not know; see `transient`."""


class Closed(InferenceError):
    """Raised when the client is used after it was closed, or before it was opened."""

    CODE = "closed"

    def __init__(self, why: str) -> None:
        super().__init__(ErrorObject(self.CODE, why, PERMANENT))


_CLASSES: dict[str, type[InferenceError]] = {
    each.CODE: each
    for each in (
        QueueFull,
        DeadlineExceeded,
        ModelLoading,
        ModelUnknown,
        TooManyTokens,
        BadRequest,
        ArtifactInvalid,
        ConfigInvalid,
        OutOfMemory,
        EngineCrashed,
        InferenceFailed,
        ProbeRequired,
        CapabilityAbsent,
        Cancelled,
        LaneBusy,
        ModuleRestarted,
    )
}


def raised(error: ErrorObject, node_id: str | None = None) -> InferenceError:
    """The exception for an error object."""
    return _CLASSES.get(error.code, OtherFailure)(error, node_id)


def of_call(error: InferenceError, first: int) -> InferenceError:
    """The error of a request whose items begin with item `first` of the call, as the call's own."""
    item = error.details.get("item")
    if not first or type(item) is not int:
        return error
    place = first + item
    told = replace(
        error.error,
        message=f"{error.error.message}; that is item {place} of the call",
        details={**error.details, "item": place},
    )
    return type(error)(told, error.node_id)


def refused(code: Code, message: str, **details: Any) -> InferenceError:
    """The exception for what is found wrong here, before anybody was asked."""
    return raised(error_of(code, message, **details))
