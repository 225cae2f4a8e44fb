"""Bake messages for tests: values only."""

from __future__ import annotations

from typing import Any

from bakemesh.protocol.builder.messages import BakeData, BakeFailed, BakeStatus, BakeSuccess
from bakemesh.protocol.identity import Identity

IDENTITY = Identity("nightly", "index", "nightly-index-1", "beta", "b1")


def status(serial: int, identity: Identity = IDENTITY, **more: Any) -> BakeStatus:
    """An interim Status; `more` are fields of BakeStatus."""
    values: dict[str, Any] = {"kind": "interim", "pct": -1, "summary": f"status {serial}"} | more
    return BakeStatus(**identity.fields(), serial=serial, **values)


def success(serial: int, lastseq: int = 0, identity: Identity = IDENTITY) -> BakeSuccess:
    """The terminal of a bake that went well."""
    return BakeSuccess(
        **identity.fields(),
        kind="outcome",
        serial=serial,
        pct=100,
        summary="done",
        final=True,
        outcome="success",
        failedsteps=[],
        lastseq=lastseq,
    )


def failed(serial: int, code: str, identity: Identity = IDENTITY, lastseq: int = 0) -> BakeFailed:
    """The terminal of a bake that failed."""
    return BakeFailed(
        **identity.fields(),
        kind="outcome",
        serial=serial,
        pct=-1,
        summary=code,
        final=True,
        outcome="failed",
        code=code,
        lastseq=lastseq,
    )


def chunk(seq: int, data: bytes = b"x", identity: Identity = IDENTITY, **more: Any) -> BakeData:
    """A chunk of stdout of the first step."""
    values: dict[str, Any] = {"stepindex": 0, "attempt": 1, "stream": "stdout"} | more
    return BakeData(**identity.fields(), seq=seq, data=data, **values)
