"""What a node says of itself: on every change, and not more often than anybody needs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bakemesh.protocol import subjects
from bakemesh.protocol.builder.messages import SystemStatus
from support.house import running_house
from support.waiting import eventually

GOOD = '<recipe name="good"><cli command="true"/></recipe>'
LONG = '<recipe name="long"><cli command="sleep 600"/></recipe>'


async def test_changes_are_said_at_once_and_a_flood_of_them_is_not(tmp_path: Path) -> None:
    async with running_house(tmp_path, "--max-bakes", "1") as house:
        heard: list[tuple[int, int]] = []

        def hear(delivery: object) -> None:
            status = delivery.received.message  # type: ignore[attr-defined]
            assert isinstance(status, SystemStatus)
            heard.append((status.bakes, status.queued))

        await house.bus.subscribe(subjects.pattern(house.bus.mesh, SystemStatus.TYPE), hear)
        # Every one of these by the beat alone, 5 s apart, would take a minute and a half.
        async with asyncio.timeout(30):
            for _ in range(6):
                first, second = await house.bake(LONG), await house.bake(LONG)
                await eventually(lambda: heard and heard[-1] == (1, 1), what="one bakes, one waits")
                await second.cancel()
                await eventually(lambda: heard[-1] == (1, 0), what="one bakes")
                await first.cancel()
                await eventually(lambda: heard[-1] == (0, 0), what="none")
        before = len(heard)
        bakes = await asyncio.gather(*(house.bake(GOOD) for _ in range(100)))
        await asyncio.gather(*(bake.outcome() for bake in bakes))
        assert len(heard) - before < 100, "a hundred bakes change it three hundred times"
        # What is kept for those who look later is the last word too.
        await eventually(lambda: heard[-1] == (0, 0), what="none")

        async def kept() -> bool:
            (node,) = await house.boss.nodes()
            return node.status is not None and (node.status.bakes, node.status.queued) == (0, 0)

        await eventually(kept, what="the last word kept")
