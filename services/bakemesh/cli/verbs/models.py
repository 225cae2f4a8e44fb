"""Lists the models of all nodes, or of one, or tries a quarantined one again (`probe`): where it answers as
it should, it may be asked for once more. A probe is an operator's right."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.cli.inferring import SETTINGS, answered
from bakemesh.settings import add_flags

if TYPE_CHECKING:
    from bakemesh.inference import Inference

EXAMPLE = """\
  bakemesh models
  bakemesh models beta --json
  bakemesh models probe minilm --node beta"""

_SYNTAX = "bakemesh models [NODE], or bakemesh models probe ALIAS [--node N]"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("words", nargs="*", metavar="[NODE] | probe ALIAS", help="what to list, or to try")
    parser.add_argument("--node", dest="target", metavar="N", help="the node, by name or id")
    add_flags(parser, SETTINGS)


def run(call: Call) -> int:
    """Prints them."""
    words: list[str] = call.args.words
    if words[:1] == ["probe"]:
        if len(words) != 2:
            raise usage(f"models {' '.join(words)}: expected one ALIAS after probe; {_SYNTAX}")
        return answered(call, lambda inference: _probe(call, inference, words[1]))
    if len(words) > 1 or (words and call.args.target):
        raise usage(f"models {' '.join(words)}: expected one NODE at most; {_SYNTAX}")
    node = words[0] if words else call.args.target
    return answered(call, lambda inference: _list(call, inference, node))


async def _list(call: Call, inference: Inference, node: str | None) -> int:
    models = await inference.models(node)
    if call.screen.machine:
        call.screen.document([{"node": each.node_id, **each.entries} for each in models])
        return Exit.DONE
    call.screen.table(
        ("model", "node", "kind", "state", "dims", "context", "weights", "size", "digest"),
        [
            (
                each.alias,
                each.node_id,
                each.kind,
                each.state,
                each.dims or "",
                each.context or "",
                each.entries.get("weights", ""),
                _size(each.entries.get("bytes")),
                each.digest.removeprefix("sha256:")[:12],
            )
            for each in models
        ],
        empty="no node has a model; take one in with `bakemesh ingest FILE --alias A`",
    )
    return Exit.DONE


async def _probe(call: Call, inference: Inference, alias: str) -> int:
    state = await inference.probe(alias, node=call.args.target)
    if call.screen.machine:
        call.screen.document({"model": alias, "state": state})
    else:
        call.screen.say(f"{alias}: {state}")
    return Exit.DONE if state == "ok" else Exit.FAILED


def _size(size: object) -> str:
    from bakemesh.bus.sizes import readable

    return readable(size) if isinstance(size, int) else ""
