"""Performance over the bus: sane, every five seconds, by the node's Builder alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil

from bakemesh.protocol import subjects
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import Performance
from support.house import running_house
from support.waiting import eventually

LONG = '<recipe name="long"><cli command="sleep 600"/></recipe>'


async def test_what_it_says_is_what_the_machine_says(tmp_path: Path) -> None:
    async with running_house(tmp_path, "--max-bakes", "1") as house:
        heard: list[Delivery] = []
        await house.bus.subscribe(subjects.pattern(house.bus.mesh, Performance.TYPE), heard.append)
        running, queued = await house.bake(LONG), await house.bake(LONG)
        await eventually(lambda: len(heard) >= 2, what="two of them")
        said = heard[-1].received.message
        assert isinstance(said, Performance)
        subject = heard[-1].subject
        assert (subject.node_id, subject.party, said.node_id) == ("alpha", "builder-alpha", "alpha")
        assert said.cpu is not None
        assert 0 <= said.cpu <= 1
        assert said.load is not None
        assert abs(said.load - psutil.getloadavg()[0]) < 20
        assert said.memorytotal is not None
        assert said.memorytotal <= psutil.virtual_memory().total
        assert said.memory is not None
        assert 0 < said.memory < said.memorytotal
        disk = psutil.disk_usage(str(house.folder))
        assert said.disktotal is not None
        assert said.disk is not None
        assert abs(said.disk - disk.used) < disk.total * 0.05
        assert said.queues is not None
        assert said.queues["bakes"] == 1
        assert set(said.queues) == {"bakes", "inbox", "outbox_status", "outbox_data"}
        await asyncio.gather(running.cancel(), queued.cancel())
