"""Ends that are bounded: what is to be given back holds nothing up, and a start can be broken off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)
CANCELLED_S = 0.5  # for what is late to notice that it was cancelled


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` gives, or raises; None where `stop` is set before it is done, which breaks it off."""
    if stop.is_set():
        work.close()
        return None
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait({working, stopping})
        if not working.cancelled():
            working.exception()  # seen: where it was broken off nobody asks for it


async def within(seconds: float, works: Iterable[Coroutine[Any, Any, Any] | asyncio.Future[Any]]) -> None:
    """Runs them side by side; what is late is cancelled and left. Never raises: failures are logged."""
    tasks = [asyncio.ensure_future(work) for work in works]
    if not tasks:
        return
    try:
        _, late = await asyncio.wait(tasks, timeout=seconds)
    finally:
        for task in tasks:
            task.cancel()
    if late:
        await asyncio.wait(late, timeout=CANCELLED_S)
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            log.info("at the stop: %s: %s", type(error).__name__, error)
