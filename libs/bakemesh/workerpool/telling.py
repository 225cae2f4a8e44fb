"""A pool's errors as the error object that every service answers with: pure.

Left out: what a caller does about it; the object says whether the same request may be sent again.
"""

from __future__ import annotations

import math
from typing import Any

from bakemesh.protocol.inference.errors import ErrorObject
from bakemesh.workerpool.errors import EngineCrashed, WorkerPoolError


def error_object(error: WorkerPoolError) -> ErrorObject:
    """What a caller may be told. Of a crash its `details` have stage, signal, exit_code and output."""
    details: dict[str, Any] = {}
    safe = True
    if isinstance(error, EngineCrashed):
        safe = error.safe_to_retry
        details = {
            "stage": error.stage,
            "during": error.during if error.during != error.stage else None,
            "signal": error.signal,
            "exit_code": error.exit_code,
            "output": error.output or None,
            "worker": error.worker or None,
        }
    after = error.retry_after_s
    return ErrorObject(
        code=error.code,
        message=error.message,
        kind=error.kind,
        safe_to_retry=safe,
        retry_after_ms=None if after is None else math.ceil(after * 1000),
        details={name: value for name, value in details.items() if value is not None},
    )
