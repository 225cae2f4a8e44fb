"""Artifact: a piece of a cached file, for a lane host that lacks it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from bakemesh.protocol.inference.answers import Chunk
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.requests import Artifact
from bakemesh.synapse.answering.cutting import FRAME_BYTES
from bakemesh.synapse.answering.parts import Parts
from bakemesh.synapse.answering.request import Request
from bakemesh.synapse.scheduling.asks import Failed

VERB = "Artifact"


async def artifact(at: Parts, request: Request, message: Artifact) -> None:
    """Answers one request. Raises what `error_from` knows."""
    length = min(message.length, at.most_bytes - FRAME_BYTES)
    data, total = await asyncio.to_thread(piece, at.cache.path(message.digest), message.offset, length)
    request.end(Chunk(request=request.id, offset=message.offset, data=data, total=total))


def piece(path: Path | None, offset: int, length: int) -> tuple[bytes, int]:
    """So many bytes from there on, fewer at the end of the file, and the size of it. Raises Failed."""
    try:
        if path is None:
            raise FileNotFoundError
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Failed(error_of(Code.MODEL_UNKNOWN, "no artifact of this digest is here")) from None
    try:
        total = os.fstat(file).st_size
        if offset > total:
            said = f"the artifact has {total} bytes; there is nothing at {offset}"
            raise Failed(error_of(Code.BAD_REQUEST, said))
        return os.pread(file, length, offset), total
    finally:
        os.close(file)
