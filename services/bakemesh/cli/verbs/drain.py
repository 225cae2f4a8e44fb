"""Takes a node out of work: it refuses new recipes, its bakes end (after --timeout those left are cancelled),
then its components are stopped in reverse order. Shown until nothing runs there; --resume takes it back."""

from __future__ import annotations

import argparse
import asyncio
import math

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.departing import follow
from bakemesh.cli.exits import Exit, usage
from bakemesh.cli.verbs.control import show_result
from bakemesh.settings import add_flags

EXAMPLE = """\
  bakemesh drain beta --timeout 600
  bakemesh drain --resume beta"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("target", metavar="NODE", help="the node, by name or id")
    parser.add_argument("--resume", action="store_true", help="let it take recipes again")
    add_leaving(parser)


def add_leaving(parser: argparse.ArgumentParser) -> None:
    """Arguments of `drain` and `down`."""
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="cancel the bakes that run on after so long; 0: all"
    )
    parser.add_argument("--detach", action="store_true", help="ask for it, and do not wait until it is done")
    parser.add_argument("--as", dest="issuer", metavar="NAME", help="who asks: an operator of the node")
    add_flags(parser, ("nats", "mesh", "supervisor", "creds", "state"))


def run(call: Call) -> int:
    """Asks, and follows."""
    if call.args.resume and call.args.timeout is not None:
        raise usage("--resume and --timeout: give one of the two")
    return link.run(leave(call, "Resume" if call.args.resume else "Drain", call.args.target))


async def leave(call: Call, verb: str, node: str) -> int:
    """Asks a node to Drain, Resume or Down and follows it to its end; the exit code."""
    from bakemesh.protocol.builder.node import NodeVerb

    timeout, interrupted = call.args.timeout, asyncio.Event()
    if timeout is not None and not 0 <= timeout < math.inf:
        raise usage(f"--timeout {timeout:g}: expected seconds, 0 or more")
    async with link.open_supervisor(call.settings, call.args.issuer) as supervisor:
        with link.on_interrupt(interrupted.set):
            node_id = (await supervisor.directory.find(node)).node_id
            result = await supervisor.control_node(NodeVerb(verb), node_id, timeout_s=timeout)
            if verb == "Resume" or call.args.detach or not result.accepted:
                return show_result(call, result, node)
            if call.screen.machine:
                call.screen.event("result", **{**result.entries(), "accepted": True})
            else:
                call.screen.note(f"node {node}: {result.summary}")
            return await follow(call, supervisor, node_id, interrupted, down=verb == "Down")
    return Exit.DONE
