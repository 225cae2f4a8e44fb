"""Orders documents by how well each fits a query, best first: from arguments, files or stdin, one document a
line. Scores are the model's raw ones: higher fits better."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit
from bakemesh.cli.inferring import add_call, answered, call_options
from bakemesh.cli.items import add_texts, lines_of

if TYPE_CHECKING:
    from bakemesh.inference import Inference

EXAMPLE = """\
  bakemesh rerank --model ranker "what ends a bake?" "a control does" "a cat"
  bakemesh rerank --model ranker --top 5 "what ends a bake?" --file passages.txt"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("query", metavar="QUERY", help="what is asked")
    add_texts(parser, "document", "a document")
    parser.add_argument("--top", type=int, metavar="N", help="show the N best only")
    parser.add_argument("--truncate", action="store_true", help="cut a document that is too long")
    add_call(parser, "reranking model")


def run(call: Call) -> int:
    """Scores them."""
    documents = lines_of(call.args.document, call.args.files)
    return answered(call, lambda inference: _rerank(call, inference, documents))


async def _rerank(call: Call, inference: Inference, documents: list[str]) -> int:
    args = call.args
    options: dict[str, Any] = call_options(args)
    scores = await inference.rerank(args.query, documents, args.model, truncate=args.truncate, **options)
    told = scores.astype(str)
    best = (-scores).argsort(kind="stable")[: args.top]
    if call.screen.machine:
        ranked = [
            {"index": int(place), "score": float(told[place]), "document": documents[place]} for place in best
        ]
        call.screen.document({"model": args.model, "tokens": inference.usage.prompt, "results": ranked})
        return Exit.DONE
    call.screen.table(
        ("score", "line", "document"),
        [(told[place], int(place) + 1, documents[place]) for place in best],
        empty="no documents",
    )
    return Exit.DONE
