"""A Builder in the test's own process, for what only a fault inside it can show.

async with builder_inside(tmp_path, nats.url) as inside:
    inside.task        # ends with what ended the Builder
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakemesh.builder.clock import Clock
from bakemesh.builder.service import run
from bakemesh.builder.settings import BuilderSettings
from bakemesh.bus import BusSettings
from support.builder import READY_S, STOP_S


@dataclass
class Inside:
    """`stop` ends it as TERM does."""

    state: Path
    task: asyncio.Task[None]
    stop: asyncio.Event


@asynccontextmanager
async def builder_inside(
    folder: Path, url: str, *, node_id: str = "alpha", clock: Clock | None = None, **settings: Any
) -> AsyncIterator[Inside]:
    """A Builder that is ready. It must end by itself when it is told to stop."""
    bus = BusSettings(servers=(url,), name="builder", node_id=node_id, identity=f"builder-{node_id}")
    state = folder / f"state-{node_id}"
    wanted = BuilderSettings(bus=bus, node=node_id, node_id=node_id, state=state, **settings)
    ready, stop = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(run(wanted, stop, clock=clock, ready=ready.set))
    waiting = asyncio.create_task(ready.wait())
    try:
        async with asyncio.timeout(READY_S):
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        yield Inside(state, task, stop)
    finally:
        waiting.cancel()
        stop.set()
        _, late = await asyncio.wait({task}, timeout=STOP_S)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
        assert not late, f"the Builder did not stop in {STOP_S:g} s"
