"""A keeper that does not answer (stopped by somebody): timeouts and Cancel end a bake all the same."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from bakemesh.protocol.builder.messages import BakeCancelled, BakeFailed
from support.mesh import mesh
from support.processes import children


def keeper_of(builder: int) -> int:
    for pid in children(builder):
        if Path(f"/proc/{pid}/comm").read_text().strip() == "bakemesh-keeper":
            return pid
    raise AssertionError("the Builder has no keeper")


async def test_a_start_that_never_comes_is_given_up(tmp_path: Path) -> None:
    async with mesh(tmp_path) as net, net.supervisor("boss") as boss:
        keeper = keeper_of(net.node.pid)
        os.kill(keeper, signal.SIGSTOP)
        try:
            late = await boss.bake(
                '<recipe name="t"><cli timeout-ms="300" command="echo 1"/></recipe>', node="alpha"
            )
            outcome = await asyncio.wait_for(late.outcome(), 20)
            assert isinstance(outcome, BakeFailed)
            assert outcome.code == "timeout"
            bake = await boss.bake('<recipe name="c"><cli command="echo 1"/></recipe>', node="alpha")
            assert (await bake.cancel()).accepted
            assert isinstance(await asyncio.wait_for(bake.outcome(), 20), BakeCancelled)
            assert not [chunk async for chunk in bake.data()]
        finally:
            os.kill(keeper, signal.SIGCONT)
