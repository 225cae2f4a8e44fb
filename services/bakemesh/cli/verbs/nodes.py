"""Lists every node that has reported on the mesh: its state, and what its last SystemStatus says. A node is
unresponsive once three of them are missed (15 s) or its claim is lost, and gone after 60 s."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit
from bakemesh.settings import add_flags

if TYPE_CHECKING:
    from bakemesh.protocol.builder.messages import SystemStatus

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
            [
                {
                    **node.status.entries(),
                    "state": str(node.state),
                    "alive": node.alive,
                    "reported": node.reported,
                    "age_s": round(node.age_s, 3),
                }
                for node in nodes
            ]
        )
        return Exit.DONE
    call.screen.table(
        ("node", "id", "state", "bakes", "queued", "components", "load", "version"),
        [
            (
                node.name,
                node.node_id,
                node.state,
                node.status.bakes,
                node.status.queued,
                ready_of(node.status),
                f"{node.status.load:.2f}",
                node.status.version,
            )
            for node in nodes
        ],
        empty="no node has reported on this mesh; start one with `bakemesh up`",
    )
    return Exit.DONE


def ready_of(status: SystemStatus) -> str:
    """`ready/all` of its components; empty where it has none."""
    entries: list[dict[str, Any]] = status.components
    if not entries:
        return ""
    return f"{sum(each.get('ready') == 1 for each in entries)}/{len(entries)}"
