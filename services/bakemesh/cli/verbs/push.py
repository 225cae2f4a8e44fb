"""Answers a <requestdata> step of a bake with a file's bytes or a text. It may be sent before the step
asks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.verbs.control import add_bake, show_result

EXAMPLE = "  bakemesh push nightly-index-7 --request stopwords --file words.txt"


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--request", required=True, metavar="NAME", help="the name of the <requestdata> step")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--file", metavar="F", help="the bytes of this file; - reads stdin")
    given.add_argument("--text", metavar="T", help="this text")
    add_bake(parser)


def run(call: Call) -> int:
    """Sends it."""
    args = call.args
    if args.text is not None:
        data = args.text.encode("utf-8", "surrogateescape")
    else:
        data = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
    return link.run(_push(call, data))


async def _push(call: Call, data: bytes) -> int:
    async with link.attached(call, call.args.recipe_id) as (_, bake):
        result = await bake.push(call.args.request, data)
    return show_result(call, result)
