"""Lists the components of all nodes, or of one, or does something to one of them: restart it (whatever its
policy says; its budget is clean again), stop it (it stays known), start it, or remove it."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.cli.verbs.control import show_result
from bakemesh.settings import add_flags

if TYPE_CHECKING:
    from bakemesh.supervisor import ComponentInfo

EXAMPLE = """\
  bakemesh components
  bakemesh components beta --json
  bakemesh components restart indexer --node beta --as ops"""

_VERBS = {"restart": "Restart", "stop": "Stop", "start": "Start", "remove": "Remove"}
_SYNTAX = "bakemesh components [NODE], or bakemesh components restart|stop|start|remove NAME [--node N]"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "words", nargs="*", metavar="[NODE] | restart|stop|start|remove NAME", help="what to list, or to do"
    )
    parser.add_argument("--node", dest="target", metavar="N", help="the node, by name or id")
    parser.add_argument(
        "--as", dest="issuer", metavar="NAME", help="who asks: the component's owner or an operator"
    )
    add_flags(parser, ("nats", "mesh", "supervisor", "creds", "state"))


def run(call: Call) -> int:
    """Prints them, or the answer."""
    words: list[str] = call.args.words
    if words[:1] and words[0] in _VERBS:
        if len(words) != 2:
            raise usage(f"components {' '.join(words)}: expected one NAME after {words[0]}; {_SYNTAX}")
        return link.run(_control(call, _VERBS[words[0]], words[1]))
    if len(words) > 1 or (words and call.args.target):
        raise usage(f"components {' '.join(words)}: expected one NODE at most; {_SYNTAX}")
    return link.run(_list(call, words[0] if words else call.args.target))


async def _control(call: Call, verb: str, name: str) -> int:
    from bakemesh.protocol.builder.node import ComponentVerb

    async with link.open_supervisor(call.settings, call.args.issuer) as supervisor:
        result = await supervisor.control_component(ComponentVerb(verb), name, call.args.target)
    return show_result(call, result, name)


async def _list(call: Call, node: str | None) -> int:
    async with link.open_supervisor(call.settings, call.args.issuer) as supervisor:
        found = await supervisor.components(node)
    if call.screen.machine:
        call.screen.document([fields(each) for each in found])
        return Exit.DONE
    now = time.time()
    call.screen.table(
        ("component", "node", "state", "restarts", "since", "pid", "kind", "reason", "watch"),
        [
            (
                each.name,
                each.node,
                each.state,
                each.restarts,
                ago(now - each.since / 1e6) if each.since else "",
                each.pid or "",
                each.kind,
                each.reason,
                " ".join(f"{key}={value}" for key, value in each.watch.items()),
            )
            for each in found
        ],
        empty=f"node {node} has no component" if node else "no node has a component",
    )
    return Exit.DONE


def fields(component: ComponentInfo) -> dict[str, Any]:
    """Stable names, for machines."""
    return {
        "name": component.name,
        "node": component.node,
        "nodeid": component.node_id,
        "state": component.state,
        "ready": component.ready,
        "restarts": component.restarts,
        "reason": component.reason,
        "since": component.since,
        "pid": component.pid,
        "kind": component.kind,
        "owner": component.owner,
        "digest": component.digest,
        "watch": dict(component.watch),
    }


def ago(seconds: float) -> str:
    """`42s`, `3m`, `5h`, `2d`: a time that has passed, in its largest unit. A clock ahead of ours: `0s`."""
    passed = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if passed >= size:
            return f"{passed // size}{unit}"
    return f"{passed}s"
