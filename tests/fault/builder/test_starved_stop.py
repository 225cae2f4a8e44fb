"""A machine too busy: the Builder gets no processor while it stops its components, for longer than it has."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from time import monotonic

from bakemesh.supervisor import Supervisor
from support.builder import builder
from support.modules import end_everything, everything_of, instances, module, recipe
from support.nats import connect, server
from support.waiting import eventually

# The last one is asked to end when the first has ended. The Builder has 2 + 2 s for the first, 1 + 2 s for
# the last, and 1.5 s to spare.
FIRST = module("first", 'trap "" TERM; while :; do sleep 0.1; done', shutdown_ms=2000, depends="last")
LAST = module("last", shutdown_ms=1000)
BOUND_S = 8.5


async def test_a_builder_that_was_starved_while_it_stops_leaves_no_component(tmp_path: Path) -> None:
    async with (
        server(tmp_path) as nats,
        connect(nats.url),
        builder(tmp_path, nats.url, "--on-stop", "stop") as node,
    ):
        try:
            async with Supervisor.connect(nats.url, "boss") as boss:
                bake = await boss.bake(recipe(LAST, FIRST), node_id="alpha")
                assert (await bake.outcome()).outcome == "success"
            assert node.process is not None
            node.process.terminate()
            await eventually(
                lambda: "component first: ready → stopping" in node.log.read_text(), what="the stop"
            )
            os.kill(node.pid, signal.SIGSTOP)
            over = monotonic() + BOUND_S + 1
            await eventually(lambda: monotonic() > over, what="more than it has")
            assert instances("first", node.state) == []  # its shim has seen to that
            assert len(instances("last", node.state)) == 1
            os.kill(node.pid, signal.SIGCONT)
            assert await node.ended() == 0
            assert everything_of(node.state) == []
        finally:
            await end_everything(node.state)
