"""Work is done while its client is there, and no longer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bakemesh.axon.openai.gone import unless_gone
from bakemesh.axon.refused import ClientGone


class Line:
    """What a server tells of a connection."""

    def __init__(self) -> None:
        self.cut = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.cut.wait()
        return {"type": "http.disconnect"}


async def test_what_is_done_in_time_is_given() -> None:
    async def work() -> int:
        return 3

    assert await unless_gone(Line().receive, work()) == 3


async def test_what_fails_is_raised() -> None:
    async def work() -> int:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        await unless_gone(Line().receive, work())


async def test_a_client_that_goes_away_ends_the_work_before_it_is_told() -> None:
    line, steps = Line(), []

    async def work() -> None:
        steps.append("began")
        line.cut.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("ended")

    with pytest.raises(ClientGone):
        await unless_gone(line.receive, work())
    assert steps == ["began", "ended"]


async def test_who_is_cancelled_ends_the_work_too() -> None:
    ended = asyncio.Event()
    began = asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(unless_gone(Line().receive, work()))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
