"""Embed: texts or ids into Vectors, in the order of the items, cut so that each message fits."""

from __future__ import annotations

from bakemesh.protocol.inference.answers import Vectors
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.requests import Embed
from bakemesh.synapse.answering.cutting import F32, parts, rows_a_message
from bakemesh.synapse.answering.given import given_items
from bakemesh.synapse.answering.parts import Parts
from bakemesh.synapse.answering.request import Request
from bakemesh.synapse.answering.texts import inline
from bakemesh.synapse.scheduling.asks import Failed, Rows

VERB = "Embed"


async def embed(at: Parts, request: Request, message: Embed) -> None:
    """Answers one request. Raises what `error_from` knows."""
    known = at.shelf.find(request.alias, "embed")
    ask = at.ask(request, message)
    if message.texts is not None and message.data is None and message.counts is None:
        texts, truncate = message.texts, message.truncate
        if inline(known, sum(map(len, texts))):
            ids, counts = known.model.tokenizer.embed_ids(texts, truncate=truncate)
        else:
            ids, counts = await at.texts.made(
                request, known, lambda: known.model.tokenizer.embed_ids(texts, truncate=truncate)
            )
    elif message.texts is None and message.data is not None and message.counts is not None:
        ids, counts = given_items(
            message.data, message.counts, known.model.manifest.limit, truncate=message.truncate
        )
    else:
        raise Failed(error_of(Code.BAD_REQUEST, "an Embed has texts, or data with counts, and not both"))
    pooling = message.pooling or known.model.manifest.pooling
    rows_each = rows_a_message(known.model.manifest.dims, at.most_bytes)
    if rows_each == 0:
        size = known.model.manifest.dims * F32
        said = (
            f"one vector has {size} bytes; {at.most_bytes}, half of the server's max_payload, go in a message"
        )
        raise Failed(error_of(Code.BAD_REQUEST, said))
    total = len(counts)
    async for rows in at.core.embed(
        known.key, counts, ids, pooling=pooling, normalize=message.normalize, ask=ask
    ):
        _give(request, rows, counts, total, rows_each)
        if at.bus.link.crowded:
            await at.bus.link.settle()


def _give(request: Request, rows: Rows, counts: list[int], total: int, rows_each: int) -> None:
    width = rows.dims * F32
    for first, n in parts(rows.first, rows.n, rows_each):
        begin = (first - rows.first) * width
        final = first + n == total
        answer = Vectors(
            request=request.id,
            first=first,
            n=n,
            dims=rows.dims,
            data=bytes(rows.data[begin : begin + n * width]),
            final=final,
            ntokens=sum(counts[first : first + n]),
        )
        if final:
            request.end(answer)
        else:
            request.part(answer)
