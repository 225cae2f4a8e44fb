"""`<module>` and `<attach>` steps against a real Builder, with command cranks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bakemesh.protocol.builder.messages import BakeFailed, BakeSuccess
from support.house import House, house_fixture, output_of, summaries
from support.modules import SLEEP, Board, attach, board, instances, module, order, recipe

house = house_fixture("--operator", "ops", "--on-stop", "stop")
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(house: House) -> AsyncIterator[Board]:
    async with board(house.bus) as made:
        yield made


async def done(house: House, *steps: str, attributes: str = "") -> BakeSuccess | BakeFailed:
    bake = await house.bake(recipe(*steps, attributes=attributes))
    outcome = await bake.outcome()
    assert isinstance(outcome, BakeSuccess | BakeFailed)
    return outcome


async def test_a_module_step_is_done_when_its_component_is_ready(house: House, seen: Board):
    bake = await house.bake(recipe(module("one", SLEEP, ready_ms=50)))
    story = await house.story(bake)
    assert isinstance(story[-1], BakeSuccess), summaries(story)
    row = await seen.until("one", "ready")
    assert (row["owner"], row["kind"], row["restarts"], row["ready"]) == ("boss", "command", 0, 1)
    assert instances("one", house.node.state) == [row["pid"]]
