"""Callers of a core, for tests: items in, and what came of them as one value."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from typing import Any

from bakemesh.protocol.inference.errors import ErrorObject
from bakemesh.synapse.scheduling.asks import Ask, Failed
from bakemesh.synapse.scheduling.core import Core
from bakemesh.workerpool.models import ModelKey
from support.scriptedlanes import packed


def ask(within_s: float = 60.0, **wishes: Any) -> Ask:
    """An Ask from now on."""
    return Ask(deadline=asyncio.get_running_loop().time() + within_s, **wishes)


async def embed(
    core: Core, key: ModelKey, items: Sequence[Sequence[int]], wishes: Ask | None = None, **how: Any
) -> list[list[float]]:
    """The vectors of items; rows are checked to come in order, without a gap, each once. Raises Failed."""
    counts, ids = packed(items)
    found: list[list[float]] = []
    how = {"pooling": "mean", "normalize": True, **how}
    async for rows in core.embed(key, counts, ids, ask=wishes or ask(), **how):
        assert rows.first == len(found)
        numbers = array("f", bytes(rows.data)).tolist()
        assert len(numbers) == rows.n * rows.dims
        found += [numbers[at : at + rows.dims] for at in range(0, len(numbers), rows.dims)]
    return found


async def text(core: Core, key: ModelKey, prompt: bytes, wishes: Ask) -> Any:
    """A generation's Text; its tokens are checked to come in order. Raises Failed."""
    parts = [part async for part in core.generate(key, prompt, 30, None, wishes)]
    assert [part.index for part in parts[:-1]] == list(range(len(parts) - 1))
    return parts[-1]


async def outcome(work: Any) -> Any:
    """Its result, or the error object that it failed with."""
    try:
        return await work
    except Failed as failed:
        return failed.error


def code(found: Any) -> str:
    """Of an outcome: the error's code, or `ok`."""
    return found.code if isinstance(found, ErrorObject) else "ok"


def nothing_is_left(core: Core) -> None:
    """What has to hold when nobody waits for anything."""
    status = core.status()
    assert (status.bytesinflight, status.queued, status.backlog) == (0, 0, 0)
    assert not core._lines
    assert not core._requests
