"""Purging on real streams: the node's own, and the hub's by the janitor; the clock is turned by hand."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from bakemesh.builder.clock import Clock
from bakemesh.builder.janitor import Janitor, microseconds
from bakemesh.builder.retention import DAY_US, STATUS_DAYS, Fill, status_due
from bakemesh.bus import Bus
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.supervisor import DataPruned
from support.mesh import mesh
from support.waiting import eventually


def test_microseconds_reads_the_servers_times() -> None:
    assert microseconds("1970-01-01T00:00:01Z") == 1_000_000
    assert microseconds("1970-01-01T00:00:01.5Z") == 1_500_000
    assert microseconds("2026-12-01T02:03:04.123456789Z") % 1_000_000 == 123_456


@pytest.mark.parametrize(("used", "limit", "over"), [(79, 100, False), (80, 100, True), (10**9, -1, False)])
def test_eighty_percent(used: int, limit: int, over: bool) -> None:
    assert Fill(used, limit).over is over


def test_a_clock_set_back_purges_nothing() -> None:
    ended = 100 * DAY_US
    assert not status_due(ended, ended - 1)
    assert not status_due(ended, ended + STATUS_DAYS * DAY_US - 1)
    assert status_due(ended, ended + STATUS_DAYS * DAY_US)


def big(size: int) -> str:
    code = f"import os; os.write(1, b'x' * {size})"
    program = f"<arg>{sys.executable}</arg><arg>-c</arg><arg>{code}</arg>"
    return f'<recipe name="big"><cli>{program}</cli></recipe>'


async def messages(bus: Bus, stream: str) -> int:
    info = await bus.hub_api.stream_info(stream)
    return int(info["state"]["messages"])


async def test_the_oldest_ended_bakes_make_room_and_a_reader_is_told(tmp_path: Path) -> None:
    async with mesh(tmp_path, "--store-max-bytes", "16MiB") as net, net.supervisor("boss") as boss:
        first = await boss.bake(big(7 * 2**20), node="alpha")
        assert isinstance(await asyncio.wait_for(first.outcome(), 30), BakeSuccess)
        second = await boss.bake(big(7 * 2**20), node="alpha")
        assert isinstance(await asyncio.wait_for(second.outcome(), 30), BakeSuccess)

        async def pruned() -> bool:
            try:
                async for _ in first.data():
                    pass
            except DataPruned:
                return True
            return False

        await eventually(pruned, within=30, what="the first bake's Data purged")
        kept = b"".join([chunk.data async for chunk in second.data()])
        assert len(kept) == 7 * 2**20


async def test_the_janitor_purges_the_hubs_old_status(tmp_path: Path) -> None:
    async with mesh(tmp_path) as net, net.supervisor("boss") as boss, net.connect("builder-alpha") as bus:
        bake = await boss.bake('<recipe name="old"><cli command="true"/></recipe>', node="alpha")
        assert isinstance(await bake.outcome(), BakeSuccess)
        status = storage.hub_status_stream(bus.mesh)

        async def arrived() -> bool:
            return await messages(bus, status) >= 4

        await eventually(arrived, what="the hub's copy of the Status")
        now = [time.time_ns() // 1000]
        janitor = Janitor(bus, Clock(wall=lambda: now[0]))
        await janitor.round()
        assert await messages(bus, status) >= 4
        now[0] += (STATUS_DAYS + 1) * DAY_US
        await janitor.round()
        assert await messages(bus, status) == 0
