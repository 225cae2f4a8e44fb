"""A wall clock that jumps, back and forth: durations, heartbeats and order do not notice."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bakemesh.builder.clock import Clock
from bakemesh.builder.service import run
from bakemesh.builder.settings import BuilderSettings
from bakemesh.bus import BusSettings
from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.supervisor import Supervisor
from support.nats import server

HOUR_US = 3_600 * 1_000_000


async def test_bakes_survive_a_clock_set_back_and_ahead(tmp_path: Path) -> None:
    jump = [0]
    clock = Clock(wall=lambda: time.time_ns() // 1000 + jump[0])
    stop, ready = asyncio.Event(), asyncio.Event()
    gate = tmp_path / "gate"
    step = f"<arg>sh</arg><arg>-c</arg><arg>echo a; while [ ! -e {gate} ]; do sleep 0.01; done; echo b</arg>"
    root = '<recipe name="c" timeout-ms="60000" status-interval-ms="50">'
    xml = f'{root}<cli timeout-ms="60000">{step}</cli></recipe>'
    async with server(tmp_path) as nats, Supervisor.connect(nats=nats.url, name="boss") as boss:
        settings = BuilderSettings(
            bus=BusSettings(servers=(nats.url,), name="builder", node_id="alpha", identity="builder-alpha"),
            node="alpha",
            node_id="alpha",
            state=tmp_path / "state",
        )
        builder = asyncio.create_task(run(settings, stop, clock=clock, ready=ready.set))
        try:
            await asyncio.wait_for(ready.wait(), 20)
            bake = await boss.bake(xml, node="alpha")
            beats = 0
            async for status in bake.status():
                if status.kind == "interim":
                    beats += 1
                    jump[0] = -HOUR_US if beats % 2 else HOUR_US
                if beats == 6:
                    break
            jump[0] = -HOUR_US
            late = await boss.bake(
                '<recipe name="l" expires-ms="60000"><cli command="true"/></recipe>', node="alpha"
            )
            assert isinstance(await asyncio.wait_for(late.outcome(), 20), BakeSuccess)
            gate.touch()
            assert isinstance(await asyncio.wait_for(bake.outcome(), 20), BakeSuccess)
            assert b"".join([chunk.data async for chunk in bake.data()]) == b"a\nb\n"
        finally:
            stop.set()
            await asyncio.wait_for(builder, 30)
