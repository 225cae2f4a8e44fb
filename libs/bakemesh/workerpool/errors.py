"""What a caller of the pool can be told instead of a result: one class a cause, the wire's code on the class.

WorkerPoolError
├── EngineCrashed                     the worker died, hung or broke the protocol in this request
│   └── RequestPoisoned               … as this very request did before: it is not run again for a while
├── ModelQuarantined                  (model, config) crashed too often: a probe has to pass first
├── DeadlineExceeded                  the caller's own time is over
├── WorkerUnavailable, LaneBusy       no worker came up; the one that is wanted is occupied
├── Cancelled, PoolClosed             the caller took it back; the pool is being closed
├── CapabilityAbsent                  no worker here can do that
├── LoadFailed                        LOAD was answered with an error
│   └── ArtifactInvalid, ConfigInvalid, LoadOutOfMemory
└── ModelUnknown, BadRequest, InferenceFailed, OutOfMemory      the worker refused the request, and lives

RuntimeDirRefused is none of these: it ends `start`, and no request sees it.
"""

from __future__ import annotations

from typing import ClassVar

TRANSIENT, PERMANENT = "transient", "permanent"


class WorkerPoolError(Exception):
    """Base of what a request can end with. `kind`: whether trying later can help."""

    code: ClassVar[str] = "inference_failed"
    kind: ClassVar[str] = PERMANENT

    def __init__(
        self, message: str, *, safe_to_retry: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.safe_to_retry = safe_to_retry  # whether the same request may be sent again
        self.retry_after_s = retry_after_s


class EngineCrashed(WorkerPoolError):
    """Raised when the worker that ran this request died, hung, or broke the protocol.

    `stage`: the request (`start`, `load`, `embed`, `rerank`, `generate`, `info`, `unload`, `ping`), or
    `timeout` or `cancel` where the worker was killed for that; `during` is the request then. `signal` and
    `exit_code`: how the process ended, both None where that is not known. `output`: its last 8 KiB, tagged.
    """

    code = "engine_crashed"
    kind = TRANSIENT

    def __init__(
        self,
        message: str,
        *,
        stage: str,
        during: str = "",
        signal: int | None = None,
        exit_code: int | None = None,
        output: str = "",
        worker: str = "",
        safe_to_retry: bool = True,
    ) -> None:
        super().__init__(message, safe_to_retry=safe_to_retry)
        self.stage, self.during = stage, during or stage
        self.signal, self.exit_code = signal, exit_code
        self.output, self.worker = output, worker


class RequestPoisoned(EngineCrashed):
    """Raised when this very request crashed a worker that ran nothing else: it is refused for 15 minutes."""

    kind = PERMANENT


class ModelQuarantined(WorkerPoolError):
    """Raised when a (model, config) spent its crash budget. Permanent until a probe passes."""

    code = "probe_required"


class DeadlineExceeded(WorkerPoolError):
    """Raised when the caller's time was over before an answer. The worker goes on, or was told to stop."""

    code = "deadline_exceeded"
    kind = TRANSIENT


class WorkerUnavailable(WorkerPoolError):
    """Raised when no worker came up while the request waited; the message says why the last one ended."""

    code = "lane_busy"
    kind = TRANSIENT


class LaneBusy(WorkerPoolError):
    """Raised when every worker that may run the request was occupied for as long as it would wait."""

    code = "lane_busy"
    kind = TRANSIENT


class Cancelled(WorkerPoolError):
    """Raised when the request was cancelled before it had anything to show."""

    code = "cancelled"


class PoolClosed(WorkerPoolError):
    """Raised when the pool is closed, or was before the answer."""

    code = "module_restarted"
    kind = TRANSIENT


class CapabilityAbsent(WorkerPoolError):
    """Raised when the worker does not know this type of request."""

    code = "capability_absent"


class Refused(WorkerPoolError):
    """Base of what a worker refused by ERR, in good order: nobody was hurt, nothing is charged."""


class LoadFailed(Refused):
    """Base of what a LOAD can be refused for."""


class ArtifactInvalid(LoadFailed):
    """Raised when the file is not what its digest says, or no model that the engine can read."""

    code = "artifact_invalid"


class ConfigInvalid(LoadFailed):
    """Raised when the engine cannot load the model with this runtime_config, or not with this at all."""

    code = "config_invalid"


class LoadOutOfMemory(LoadFailed):
    """Raised when there was no memory for the model."""

    code = "oom"
    kind = TRANSIENT


class OutOfMemory(Refused):
    """Raised when there was no memory for this request."""

    code = "oom"
    kind = TRANSIENT


class ModelUnknown(Refused):
    """Raised when nobody loaded this model here, or the worker lost it twice."""

    code = "model_unknown"


class BadRequest(Refused):
    """Raised when the request cannot be run by this model, or does not fit a frame."""

    code = "bad_request"


class InferenceFailed(Refused):
    """Raised when the engine failed in good order."""

    code = "inference_failed"
    kind = TRANSIENT


class RuntimeDirRefused(Exception):
    """Raised when the runtime folder does not serve: it is another user's, or another pool's at this time."""


_AT_LOAD: dict[str, type[WorkerPoolError]] = {
    "artifact_invalid": ArtifactInvalid,
    "config_invalid": ConfigInvalid,
    "oom": LoadOutOfMemory,
}
_ELSE: dict[str, type[WorkerPoolError]] = {
    "artifact_invalid": ArtifactInvalid,
    "config_invalid": ConfigInvalid,
    "oom": OutOfMemory,
    "bad_request": BadRequest,
    "unknown_model": ModelUnknown,
    "unknown_type": CapabilityAbsent,
    "cancelled": Cancelled,
    "inference_failed": InferenceFailed,
}


def refusal(stage: str, code: str, msg: str) -> WorkerPoolError:
    """The error for a worker's ERR; a code that v1 does not have is `inference_failed`, and is told."""
    found = (_AT_LOAD if stage == "load" else {}).get(code) or _ELSE.get(code)
    if found is None:
        return InferenceFailed(f"{stage}: {msg} (the worker's code: {code!r})")
    return found(f"{stage}: {msg}", safe_to_retry=found.kind == TRANSIENT)
