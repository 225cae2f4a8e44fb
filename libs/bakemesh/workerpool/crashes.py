"""How a crash is told: the facts of a dead worker as the typed error of a request or of a start."""

from __future__ import annotations

from bakemesh.workerpool.charging import Cause
from bakemesh.workerpool.errors import EngineCrashed, RequestPoisoned
from bakemesh.workerpool.starting import StartFailed
from bakemesh.workerpool.worker import Crash


def crash_error(lane: str, crash: Crash, *, poison: bool) -> EngineCrashed:
    """For the caller of the request that the worker had."""
    stage = {Cause.TIMEOUT: "timeout", Cause.CANCEL: "cancel"}.get(crash.cause, crash.doing)
    exit_ = crash.exit
    return (RequestPoisoned if poison else EngineCrashed)(
        f"{crash.reason}; the worker of lane {lane}: {exit_ or 'its end is not known'}",
        stage=stage,
        during=crash.doing,
        signal=exit_.signal if exit_ is not None else None,
        exit_code=exit_.code if exit_ is not None else None,
        output=crash.output,
        worker=lane,
        safe_to_retry=not poison,
    )


def start_error(lane: str, failed: StartFailed) -> EngineCrashed:
    """For whoever starts the pool."""
    exit_ = failed.exit
    tail = f"\n{failed.output}" if failed.output else ""
    return EngineCrashed(
        f"{failed.reason}{tail}",
        stage="start",
        signal=exit_.signal if exit_ is not None else None,
        exit_code=exit_.code if exit_ is not None else None,
        output=failed.output,
        worker=lane,
        safe_to_retry=not failed.mismatch,
    )
