"""Gives the vector of each text: from arguments, files or stdin, one text a line. Out come lines of numbers
in the order of the texts, JSON with --json, or a NumPy file (float32, one row a text) with --out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.cli.inferring import add_call, answered, call_options
from bakemesh.cli.items import add_texts, lines_of

if TYPE_CHECKING:
    from bakemesh.inference import Inference

EXAMPLE = """\
  bakemesh embed --model minilm "first text" "second text"
  bakemesh embed --model minilm --file corpus.txt --class bulk --out corpus.npy"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_texts(parser, "text", "a text")
    parser.add_argument("--out", metavar="FILE.npy", help="write the rows there, as NumPy reads them")
    parser.add_argument("--pooling", choices=("mean", "cls", "last"), help="default: the model's own")
    parser.add_argument("--raw", action="store_true", help="do not bring the vectors to length 1")
    parser.add_argument("--truncate", action="store_true", help="cut a text that is too long for the model")
    add_call(parser, "embedding model")


def run(call: Call) -> int:
    """Embeds them."""
    args = call.args
    if args.out is not None and not args.out.endswith(".npy"):
        raise usage(f"--out {args.out}: expected a name that ends in .npy")
    texts = lines_of(args.text, args.files)
    return answered(call, lambda inference: _embed(call, inference, texts))


async def _embed(call: Call, inference: Inference, texts: list[str]) -> int:
    import numpy as np

    args = call.args
    options: dict[str, Any] = call_options(args)
    rows = await inference.embed(
        texts,
        model=args.model,
        pooling=args.pooling,
        normalize=not args.raw,
        truncate=args.truncate,
        **options,
    )
    if args.out is not None:
        with Path(args.out).open("wb") as file:
            np.save(file, rows)
    if call.screen.machine:
        told: dict[str, Any] = {
            "model": args.model,
            "count": rows.shape[0],
            "dims": rows.shape[1],
            "tokens": inference.usage.prompt,
        }
        # The shortest digits that are this float32, not those of the float64 that it becomes.
        vectors = [[float(number) for number in row] for row in rows.astype(str)]
        call.screen.document(told | ({"vectors": vectors} if args.out is None else {"file": args.out}))
    elif args.out is not None:
        call.screen.note(f"{rows.shape[0]} rows of {rows.shape[1]} numbers in {args.out}")
    else:
        for row in rows.astype(str):
            call.screen.say(" ".join(row))
    return Exit.DONE
