"""Runs on a lane: pieces in, of each a result or a LaneFailed; nothing else comes out, whatever happens."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.synapse.lanes.base import LaneFailed, Lanes
from bakemesh.synapse.scheduling.lines import LineKey, Piece
from bakemesh.synapse.scheduling.request import Request
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.models import Sampling, Share, Text, Token, Vectors

log = logging.getLogger(__name__)
_F32 = 4


async def embed(
    lanes: Lanes, lane: str, key: LineKey, pieces: Sequence[Piece], call: Call
) -> list[Vectors | LaneFailed]:
    """One batch."""
    shares = [_share(piece) for piece in pieces]
    try:
        found = await lanes.embed_batch(lane, key.model, shares, key.pooling, key.normalize, call)
    except LaneFailed as failed:
        return [failed] * len(pieces)
    except Exception as error:  # noqa: BLE001 - a defect ends its requests, not all others'
        return [_defect(lane, error)] * len(pieces)
    if len(found) != len(pieces):
        return [_wrong(f"lane {lane} gave {len(found)} results for {len(pieces)} shares")] * len(pieces)
    return [_checked(lane, piece, result) for piece, result in zip(pieces, found, strict=True)]


async def rerank(lanes: Lanes, lane: str, key: LineKey, piece: Piece, call: Call) -> memoryview | LaneFailed:
    """Some candidates against their query."""
    request: Any = piece.ticket.owner
    counts = request.counts[piece.first : piece.end]
    ids = b"".join((request.prefix, memoryview(request.ids)[piece.offset : piece.until]))
    try:
        scores = await lanes.rerank(lane, key.model, request.extra, counts, ids, call)
    except LaneFailed as failed:
        return failed
    except Exception as error:  # noqa: BLE001 - as above
        return _defect(lane, error)
    if scores.nbytes != _F32 * len(counts):
        return _wrong(f"lane {lane} gave {scores.nbytes} bytes of scores for {len(counts)} candidates")
    return scores


async def generate(
    lanes: Lanes, lane: str, request: Request[Any], call: Call, seen: Callable[[Token], None], *, stream: bool
) -> Text | LaneFailed:
    """A text; each token is told to `seen` where it is a stream."""
    model, ids, most = request.model, request.ids, request.max_tokens
    text: Text | None = None
    try:
        if not stream:
            return await lanes.generate(lane, model, ids, most, call)
        parts = lanes.generate_stream(lane, model, ids, most, request.sampling or Sampling(), call)
        async with contextlib.aclosing(parts) as streaming:  # type: ignore[type-var]  # they are generators
            async for part in streaming:
                if isinstance(part, Token):
                    seen(part)
                else:
                    text = part
    except LaneFailed as failed:
        return failed
    except Exception as error:  # noqa: BLE001 - as above
        return _defect(lane, error)
    return text if text is not None else _wrong(f"lane {lane} ended a stream without its text")


def _share(piece: Piece) -> Share:
    request: Any = piece.ticket.owner
    counts = request.counts
    if piece.first == 0 and piece.end == len(counts):
        return Share(counts, request.ids)
    return Share(counts[piece.first : piece.end], memoryview(request.ids)[piece.offset : piece.until])


def _checked(lane: str, piece: Piece, result: Vectors | LaneFailed) -> Vectors | LaneFailed:
    if isinstance(result, LaneFailed):
        return result
    n = piece.end - piece.first
    if result.n != n or result.data.nbytes != _F32 * n * result.dims:
        said = f"{result.n} × {result.dims} numbers in {result.data.nbytes} bytes for {n} items"
        return _wrong(f"lane {lane} gave {said}")
    return result


def _wrong(said: str) -> LaneFailed:
    log.error("%s", said)
    return LaneFailed(error_of(Code.INFERENCE_FAILED, said))


def _defect(lane: str, error: Exception) -> LaneFailed:
    log.error("a run on lane %s ended by a defect: %r", lane, error, exc_info=error)
    return LaneFailed(
        error_of(Code.INFERENCE_FAILED, f"the module failed on lane {lane}: {type(error).__name__}")
    )
