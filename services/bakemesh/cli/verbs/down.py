"""Ends a node: it is drained first (see `bakemesh drain`), then its Builder ends, and with it `bakemesh up`
there. Without NODE: the node of this machine's state folder."""

from __future__ import annotations

import argparse

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import usage
from bakemesh.cli.verbs.drain import add_leaving, leave
from bakemesh.settings.node import read_node

EXAMPLE = """\
  bakemesh down
  bakemesh down beta --timeout 60"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "target", nargs="?", metavar="NODE", help="by name or id; default: that of the state folder"
    )
    add_leaving(parser)


def run(call: Call) -> int:
    """Asks, and follows."""
    node = call.args.target
    if node is None:
        state = call.settings.state
        found = read_node(state)
        if found is None:
            raise usage(
                f"state folder {state} (from {call.settings.origin('state')}) is no node's; name the NODE"
            )
        node = found.id
    return link.run(leave(call, "Down", node))
