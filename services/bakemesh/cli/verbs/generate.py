"""Writes on from a prompt: its arguments, a file, or stdin, as it is (see `bakemesh chat` for a model's own
template). The text is shown as it is made; with --json a line a token, then one with the whole."""

from __future__ import annotations

import argparse
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from bakemesh.cli import speaking
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit
from bakemesh.cli.inferring import add_call, add_sampling, answered, sampling_options
from bakemesh.cli.items import whole

if TYPE_CHECKING:
    from bakemesh.inference import Inference

EXAMPLE = """\
  bakemesh generate --model small "Once upon a time"
  bakemesh generate --model small --json-schema answer.json --file prompt.txt"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("prompt", nargs="*", metavar="PROMPT", help="the prompt; without any: all of stdin")
    parser.add_argument("--file", metavar="F", help="the prompt is the whole of this file; - reads stdin")
    add_sampling(parser)
    add_call(parser, "generative model")


def run(call: Call) -> int:
    """Generates."""
    args = call.args
    prompt = whole(args.prompt, [args.file] if args.file else None)
    options = sampling_options(args)
    return answered(call, lambda inference: _generate(call, inference, prompt, options))


async def _generate(call: Call, inference: Inference, prompt: str, options: dict[str, Any]) -> int:
    from bakemesh.inference import Token

    last = ""
    async with aclosing(inference.stream(prompt, call.args.model, **options)) as parts:
        async for part in parts:
            if isinstance(part, Token):
                last = part.text or last
                speaking.token(call.screen, part)
            else:
                speaking.end(call.screen, "text", part, newline=not last.endswith("\n"))
    return Exit.DONE
