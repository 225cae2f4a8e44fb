"""An answer of vectors, cut into those of each caller: pure."""

from __future__ import annotations

from collections.abc import Sequence

from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.lanes import LaneError, LaneVectors
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.synapse.lanes.failing import failed
from bakemesh.workerpool import Vectors


def per_share(found: LaneVectors, items: Sequence[int], lane: str) -> list[Vectors | LaneFailed]:
    """Of each share its vectors, or why it has none. Raises LaneFailed where the answer contradicts itself:
    no row is ever given to the wrong caller."""
    errors = _errors(found, len(items), lane)
    rows = sum(count for share, count in enumerate(items) if share not in errors)
    if found.n != rows or len(found.data) != 4 * rows * found.dims:
        raise _violation(lane, f"{found.n} rows of {found.dims} in {len(found.data)} bytes, not {rows} rows")
    data, width, row = memoryview(found.data), 4 * found.dims, 0
    out: list[Vectors | LaneFailed] = []
    for share, count in enumerate(items):
        if (error := errors.get(share)) is not None:
            out.append(error)
            continue
        out.append(Vectors(count, found.dims, data[width * row : width * (row + count)]))
        row += count
    return out


def _errors(found: LaneVectors, shares: int, lane: str) -> dict[int, LaneFailed]:
    errors: dict[int, LaneFailed] = {}
    for told in found.failed or ():
        share = told.get("share")
        if type(share) is not int or not 0 <= share < shares or share in errors:
            raise _violation(lane, f"an error of share {share!r}, of {shares}")
        entries = {name: value for name, value in told.items() if name != "share"}
        try:
            errors[share] = failed(LaneError.from_entries({"request": found.request, **entries}).value())
        except MessageError as error:
            raise _violation(lane, f"an error of share {share} that is none: {error}") from error
    return errors


def _violation(lane: str, reason: str) -> LaneFailed:
    return LaneFailed(error_of(Code.INFERENCE_FAILED, f"lane {lane} answered with {reason}"))
