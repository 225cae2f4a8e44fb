"""Waiting for a condition with a deadline, instead of sleeping."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any


async def eventually(
    check: Callable[[], Any | Awaitable[Any]], *, within: float = 20.0, what: str = "the condition"
) -> Any:
    """Returns the first true result of `check` (plain or coroutine). Fails, naming `what`, after `within`
    seconds.
    """
    deadline = asyncio.get_running_loop().time() + within
    while True:
        result = check()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"{what} did not come true within {within:g} s; last result: {result!r}")
        await asyncio.sleep(0.01)
