"""Embed: texts or ids into Vectors, in the order of the items, cut so that each message fits.

The usual request, a few short texts, is read, asked and answered in plain callbacks: no task is made for it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import aclosing

from bakemesh.protocol.inference.answers import Vectors
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.requests import Embed
from bakemesh.synapse.answering.cutting import F32, parts, rows_a_message
from bakemesh.synapse.answering.given import given_items
from bakemesh.synapse.answering.mapping import NO_RESULT, error_from
from bakemesh.synapse.answering.parts import Parts
from bakemesh.synapse.answering.request import Request
from bakemesh.synapse.answering.shelf import Known
from bakemesh.synapse.answering.texts import inline
from bakemesh.synapse.scheduling.asks import Ask, Failed, Rows
from bakemesh.synapse.scheduling.request import Request as Asked

VERB = "Embed"
FEW = 256  # items whose answers need no pauses: they are no load for a link


def embed(at: Parts, request: Request, message: Embed) -> Awaitable[None] | None:
    """Answers one request, or gives what will. Raises what `error_from` knows."""
    known = at.shelf.find(request.alias, "embed")
    ask = at.ask(request, message)
    if message.texts is not None and message.data is None and message.counts is None:
        texts, truncate = message.texts, message.truncate
        if not inline(known, sum(map(len, texts))):
            return _read(at, request, message, known, texts, ask)
        ids, counts = known.model.tokenizer.embed_ids(texts, truncate=truncate)
    elif message.texts is None and message.data is not None and message.counts is not None:
        ids, counts = given_items(
            message.data, message.counts, known.model.manifest.limit, truncate=message.truncate
        )
    else:
        raise Failed(error_of(Code.BAD_REQUEST, "an Embed has texts, or data with counts, and not both"))
    answering = Embedding(at, request, message, known, ids, counts, ask)
    if len(counts) <= FEW:
        answering.listen()
        return None
    return answering.all()


async def _read(
    at: Parts, request: Request, message: Embed, known: Known, texts: list[str], ask: Ask
) -> None:
    """Answers one whose texts are read in a thread."""
    truncate = message.truncate
    ids, counts = await at.texts.made(
        request, known, lambda: known.model.tokenizer.embed_ids(texts, truncate=truncate)
    )
    await Embedding(at, request, message, known, ids, counts, ask).all()


class Embedding:
    """One request that the core has. Raises Failed where it does not take it."""

    __slots__ = ("_ask", "_asked", "_at", "_counts", "_request", "_rows_each")

    def __init__(
        self,
        at: Parts,
        request: Request,
        message: Embed,
        known: Known,
        ids: bytes,
        counts: list[int],
        ask: Ask,
    ) -> None:
        manifest = known.model.manifest
        self._at, self._request, self._counts, self._ask = at, request, counts, ask
        self._rows_each = rows_a_message(manifest.dims, at.most_bytes)
        if self._rows_each == 0:
            said = (
                f"one vector has {manifest.dims * F32} bytes; a message holds {at.most_bytes} of them at most"
            )
            raise Failed(error_of(Code.BAD_REQUEST, said))
        self._asked: Asked[Rows] = at.core.embed(
            known.key,
            counts,
            ids,
            pooling=message.pooling or manifest.pooling,
            normalize=message.normalize,
            ask=ask,
        )

    def listen(self) -> None:
        """Answers as rows come, in the core's turn of the loop."""
        self._asked.listen(self._news)

    def _news(self) -> None:
        asked, request = self._asked, self._request
        try:
            for rows in asked.taken():
                self._give(rows)
        except Exception as error:  # noqa: BLE001 - the border: whatever it is, the caller is answered
            request.fail(error_from(error))
            self._ask.cancel()
        if asked.over and not request.ended:
            request.fail(asked.error or NO_RESULT)

    async def all(self) -> None:
        """Answers, and waits where the link has too much to carry. Raises what `error_from` knows."""
        link = self._at.bus.link
        async with aclosing(self._asked):
            async for rows in self._asked:
                self._give(rows)
                if link.crowded:
                    await link.settle()

    def _give(self, rows: Rows) -> None:
        counts, width = self._counts, rows.dims * F32
        for first, n in parts(rows.first, rows.n, self._rows_each):
            begin = (first - rows.first) * width
            final = first + n == len(counts)
            answer = Vectors(
                request=self._request.id,
                first=first,
                n=n,
                dims=rows.dims,
                data=bytes(rows.data[begin : begin + n * width]),
                final=final,
                ntokens=sum(counts[first : first + n]),
            )
            if final:
                self._request.end(answer)
            else:
                self._request.part(answer)
