"""Rerank: a query and documents into one raw logit a document."""

from __future__ import annotations

from bakemesh.protocol.inference.answers import Scores
from bakemesh.protocol.inference.requests import Rerank
from bakemesh.synapse.answering.given import I32
from bakemesh.synapse.answering.parts import Parts
from bakemesh.synapse.answering.request import Request
from bakemesh.synapse.answering.texts import inline

VERB = "Rerank"


async def rerank(at: Parts, request: Request, message: Rerank) -> None:
    """Answers one request. Raises what `error_from` knows."""
    known = at.shelf.find(request.alias, "rerank")
    ask = at.ask(request, message)
    query, documents, truncate = message.query, message.documents, message.truncate
    if inline(known, len(query) + sum(map(len, documents))):
        asked, counts, ids = known.model.tokenizer.pair_ids(query, documents, truncate=truncate)
    else:
        asked, counts, ids = await at.texts.made(
            request, known, lambda: known.model.tokenizer.pair_ids(query, documents, truncate=truncate)
        )
    scores = await at.core.rerank(known.key, ids[: asked * I32], counts, ids[asked * I32 :], ask)
    n, special = len(counts), known.model.manifest.tokenizer.pair
    request.end(
        Scores(request=request.id, n=n, data=bytes(scores), ntokens=sum(counts) + n * (asked + special))
    )
