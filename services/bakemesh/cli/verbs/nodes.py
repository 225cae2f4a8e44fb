"""Lists every node that has reported on the mesh, with its last SystemStatus."""

from __future__ import annotations

import argparse

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit
from bakemesh.settings import add_flags

EXAMPLE = "  bakemesh nodes"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_flags(parser, ("nats", "mesh", "supervisor", "creds", "state"))


def run(call: Call) -> int:
    """Prints them."""
    return link.run(_nodes(call))


async def _nodes(call: Call) -> int:
    async with link.open_supervisor(call.settings) as supervisor:
        nodes = await supervisor.nodes()
    if call.screen.machine:
        call.screen.document(
            [{**node.status.entries(), "alive": node.alive, "reported": node.reported} for node in nodes]
        )
        return Exit.DONE
    call.screen.table(
        ("node", "id", "state", "bakes", "queued", "load", "version"),
        [
            (
                node.name,
                node.node_id,
                ("draining" if node.status.draining else "ready") if node.alive else "gone",
                node.status.bakes,
                node.status.queued,
                f"{node.status.load:.2f}",
                node.status.version,
            )
            for node in nodes
        ],
        empty="no node has reported on this mesh; start one with `bakemesh up`",
    )
    return Exit.DONE
