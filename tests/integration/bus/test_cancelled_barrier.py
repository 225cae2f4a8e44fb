"""A subscription that is given up while the server is asked must not take the connection with it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.nats import connect, server


async def test_the_connection_lives_on_when_subscribing_is_cancelled_midway(tmp_path: Path) -> None:
    async with server(tmp_path) as nats, connect(nats.url) as bus:
        for turns in range(1, 40):
            making = asyncio.ensure_future(bus.link.barrier())
            for _ in range(turns):
                await asyncio.sleep(0)
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
        reading = bus.link._client._reading_task
        await bus.link.barrier()
        assert not reading.done(), "the library's read loop died of a PONG that nobody waited for"
        assert (await bus.api.account_info())["memory"] == 0
