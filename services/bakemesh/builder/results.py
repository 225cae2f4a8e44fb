"""Results of requests, made the same way by everybody here who answers them."""

from __future__ import annotations

from typing import Any

from bakemesh.builder.bake.state import Refused
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import Result, clip


def result_of(verb: str, code: Code, summary: str, retry_ms: int | None = None, **about: Any) -> Result:
    """Accepted where the code is OK; the summary within its bounds. `about`: further entries."""
    return Result(
        **about,
        verb=verb,
        accepted=code is Code.OK,
        code=str(code),
        summary=clip(summary),
        retryms=retry_ms,
    )


def limited(what: str, wait_s: float) -> Refused:
    """What is refused because too many of `what` came."""
    wait_ms = int(wait_s * 1000) + 1
    return Refused(Code.RATE_LIMITED, f"too many {what}; again in {wait_ms} ms", wait_ms)
