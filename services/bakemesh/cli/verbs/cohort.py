"""Named sets of nodes: `set` makes one (or makes it other nodes), `list` shows them, `remove` forgets one.
`bakemesh bake --cohort NAME` bakes on all of its nodes."""

from __future__ import annotations

import argparse

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.settings import add_flags

EXAMPLE = """\
  bakemesh cohort set web alpha beta
  bakemesh cohort list
  bakemesh cohort remove web"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("verb", choices=("set", "list", "remove"), help="make one, show all, forget one")
    parser.add_argument(
        "words", nargs="*", metavar="NAME NODE…", help="the cohort; for set also its nodes, by name or id"
    )
    parser.add_argument("--as", dest="issuer", metavar="NAME", help="who asks: an operator")
    add_flags(parser, ("nats", "mesh", "supervisor", "creds", "state"))


def run(call: Call) -> int:
    """Does it."""
    verb, words = call.args.verb, call.args.words
    if verb == "set" and len(words) < 2:
        raise usage("cohort set: expected NAME and at least one NODE")
    if verb == "remove" and len(words) != 1:
        raise usage("cohort remove: expected one NAME")
    if verb == "list" and words:
        raise usage(f"cohort list {' '.join(words)}: expected nothing more")
    return link.run({"set": _set, "list": _list, "remove": _remove}[verb](call))


async def _set(call: Call) -> int:
    name, *nodes = call.args.words
    async with link.open_supervisor(call.settings, call.args.issuer) as supervisor:
        members = await supervisor.cohort(name).set(nodes)
    return _show(call, name, members)


async def _remove(call: Call) -> int:
    (name,) = call.args.words
    async with link.open_supervisor(call.settings, call.args.issuer) as supervisor:
        await supervisor.cohort(name).remove()
    return _show(call, name, ())


async def _list(call: Call) -> int:
    async with link.open_supervisor(call.settings) as supervisor:
        found = await supervisor.cohorts()
    if call.screen.machine:
        call.screen.document([{"name": name, "nodes": list(nodes)} for name, nodes in sorted(found.items())])
        return Exit.DONE
    call.screen.table(
        ("cohort", "nodes"),
        [(name, " ".join(nodes)) for name, nodes in sorted(found.items())],
        empty="there is no cohort; make one with `bakemesh cohort set NAME NODE…`",
    )
    return Exit.DONE


def _show(call: Call, name: str, members: tuple[str, ...]) -> int:
    if call.screen.machine:
        call.screen.document({"name": name, "nodes": list(members)})
    else:
        call.screen.say(f"cohort {name}: {' '.join(members)}" if members else f"cohort {name} is removed")
    return Exit.DONE
