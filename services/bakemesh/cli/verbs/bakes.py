"""Lists every bake that is known, those that wait for their node included."""

from __future__ import annotations

import argparse

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.settings import add_flags

EXAMPLE = "  bakemesh bakes --limit 100"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="the newest N (50); 0: all")
    add_flags(parser, ("nats", "mesh", "supervisor", "creds", "state"))


def run(call: Call) -> int:
    """Prints them."""
    if call.args.limit < 0:
        raise usage(f"--limit {call.args.limit}: expected 0 or more")
    return link.run(_bakes(call))


async def _bakes(call: Call) -> int:
    from bakemesh.cli.listing import bakes

    async with link.open_supervisor(call.settings) as supervisor:
        nodes = [node.node_id for node in await supervisor.nodes()]
        rows = await bakes(supervisor.bus, nodes, limit=call.args.limit or None)
    if call.screen.machine:
        call.screen.document([row.fields() for row in rows])
        return Exit.DONE
    call.screen.table(
        ("recipeid", "supervisor", "node", "state", "%", "summary"),
        [
            (
                row.key.recipe_id,
                row.key.supervisor,
                row.node,
                row.state,
                row.pct if row.pct >= 0 else "",
                row.summary,
            )
            for row in rows
        ],
        empty="no bake is known on this mesh",
    )
    return Exit.DONE
