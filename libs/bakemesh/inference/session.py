"""The client: embeddings, rerankings, text, and the care of models, from whichever node has room.

Guarantees: each call gives its whole result or raises one exception (`errors`), at its deadline at the
latest; cancelling the caller's task, or closing a stream, cancels the request on its node; large calls are
cut by items and put together again. Left out: how a node is found (`carrying`, `nodes`, `choosing`) and how
answers become arrays (`gathering`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import PurePath
from typing import Any, Literal, Unpack

from bakemesh.inference import care
from bakemesh.inference.asking import (
    BYTES_A_TOKEN,
    Ids,
    Items,
    Turn,
    again,
    alias_of,
    ids_of,
    items_of,
    message_of,
    turns_of,
)
from bakemesh.inference.carrying import Job, all_of
from bakemesh.inference.cutting import cut, room_for, text_size
from bakemesh.inference.errors import InferenceError, of_call, refused
from bakemesh.inference.flights import expected
from bakemesh.inference.gathering import Array, Part, Rows, Stream, scores_of
from bakemesh.inference.opening import Client
from bakemesh.inference.options import CallOptions, GenerateOptions, Pooling, check, entries_of
from bakemesh.inference.results import Health, Ingested, ModelInfo, Text, Token
from bakemesh.protocol.inference import answers, requests
from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.subjects import ANY_NODE

CARE_S = 10.0  # for what is answered from stamps
PROBE_S = 300.0
INGEST_S = 3600.0


class Inference(Client):
    """See Client for its life: `async with Inference.connect(...) as inference`."""

    async def embed(
        self,
        items: Items,
        *,
        model: str,
        pooling: Pooling | None = None,
        normalize: bool = True,
        truncate: bool = False,
        **options: Unpack[CallOptions],
    ) -> Array:
        """Vectors: float32, shape (items, dims), rows in the items' order.

        `items`: texts (one text is one item), or rows of token ids, special tokens included. `pooling`: the
        model's own where it is None. `truncate`: what is too long is cut, else TooManyTokens. Without items:
        shape (0, 0). Raises InferenceErrors, and the bus's errors.
        """
        check(options, CallOptions)
        given = items_of(items)
        common = {"pooling": pooling, "normalize": int(normalize), "truncate": int(truncate)}
        pieces = cut(given.sizes, room_for(self.bus.max_payload))
        messages = [
            message_of(requests.Embed, {**common, **entries_of(options), **given.entries(piece)})
            for piece in pieces
        ]
        jobs = await self._jobs(messages, model, [given.tokens(piece) for piece in pieces], options)
        rows = Rows(len(given.sizes))

        async def one(piece: range, job: Job) -> None:
            part = Part(rows, piece)
            try:
                async with aclosing(self._running.carry(job)) as found:
                    async for answer in found:
                        part.add(expected(answer, answers.Vectors, job.carried_by), job.carried_by)
            except InferenceError as error:
                raise of_call(error, piece.start) from None
            self._used(options, job, part.tokens)

        await all_of(one(piece, job) for piece, job in zip(pieces, jobs, strict=True))
        return rows.result()

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        model: str,
        *,
        truncate: bool = False,
        **options: Unpack[CallOptions],
    ) -> Array:
        """Scores: float32, shape (documents,), raw logits in the documents' order; higher is nearer.

        `truncate`: a document that does not fit beside the query is cut, else TooManyTokens. Raises
        InferenceErrors, and the bus's errors.
        """
        check(options, CallOptions)
        if isinstance(documents, str):
            raise refused(Code.BAD_REQUEST, "documents: expected several texts, not one")
        texts = list(documents)
        sizes = [text_size(text, item) for item, text in enumerate(texts)]
        asked = text_size(query, 0)
        pieces = cut(sizes, room_for(self.bus.max_payload, asked))
        common = {"query": query, "truncate": int(truncate), **entries_of(options)}
        messages = [
            message_of(requests.Rerank, {**common, "documents": texts[piece.start : piece.stop]})
            for piece in pieces
        ]
        tokens = [(sum(sizes[each.start : each.stop]) + asked * len(each)) / BYTES_A_TOKEN for each in pieces]
        jobs = await self._jobs(messages, model, tokens, options)
        scores = Rows(len(texts))

        async def one(piece: range, job: Job) -> None:
            try:
                answer = await self._running.only(job, answers.Scores)
            except InferenceError as error:
                raise of_call(error, piece.start) from None
            found = scores_of(answer, len(piece), job.carried_by)
            scores.at(job.carried_by, 1)[piece.start : piece.stop, 0] = found
            self._used(options, job, answer.ntokens)

        await all_of(one(piece, job) for piece, job in zip(pieces, jobs, strict=True))
        return scores.result().reshape(-1)

    # -- text

    async def generate(self, prompt: str | Ids, model: str, **options: Unpack[GenerateOptions]) -> Text:
        """The text that goes on from `prompt`: text as it is, or token ids. Raises InferenceErrors, and the
        bus's errors.
        """
        return await self._text(_prompt(prompt), model, options)

    def stream(
        self, prompt: str | Ids, model: str, **options: Unpack[GenerateOptions]
    ) -> AsyncGenerator[Token | Text, None]:
        """As `generate`, token by token, and the Text at last; the tokens' texts together are its text.

        Closing it (`contextlib.aclosing`) cancels the generation.
        """
        return self._tokens(_prompt(prompt), model, options)

    async def chat(self, messages: Sequence[Turn], model: str, **options: Unpack[GenerateOptions]) -> Text:
        """The next turn of a chat. `messages`: maps of `role` and `content`, or pairs, rendered with the
        model's own template.
        """
        return await self._text({"messages": turns_of(messages)}, model, options)

    def chat_stream(
        self, messages: Sequence[Turn], model: str, **options: Unpack[GenerateOptions]
    ) -> AsyncGenerator[Token | Text, None]:
        """As `chat`, token by token: see `stream`."""
        return self._tokens({"messages": turns_of(messages)}, model, options)

    async def _text(self, asked: Mapping[str, Any], model: str, options: GenerateOptions) -> Text:
        job = await self._generation(asked, model, options, stream=False)
        return self._ended(await self._running.only(job, answers.Text), job, options)

    async def _tokens(
        self, asked: Mapping[str, Any], model: str, options: GenerateOptions
    ) -> AsyncGenerator[Token | Text, None]:
        job = await self._generation(asked, model, options, stream=True)
        order, given = Stream(), 0
        async with aclosing(self._running.carry(job)) as found:
            async for answer in found:
                if isinstance(answer, answers.Token):
                    if order.takes(answer, job.carried_by):
                        given += len(answer.text)
                        yield Token(answer.index, answer.text)
                    continue
                text = self._ended(expected(answer, answers.Text, job.carried_by), job, options)
                if len(text.text) > given:  # what was held back, in case it began a stop string
                    yield Token(order.next, text.text[given:])
                yield text

    async def _generation(
        self, asked: Mapping[str, Any], model: str, options: GenerateOptions, *, stream: bool
    ) -> Job:
        check(options, GenerateOptions)
        message = message_of(requests.Generate, {**asked, **entries_of(options), "stream": int(stream)})
        size = len(self.bus.seal(message).payload)
        cut([size], room_for(self.bus.max_payload))
        (job,) = await self._jobs([message], model, [size / BYTES_A_TOKEN + message.maxtokens], options)
        return job

    def _ended(self, text: answers.Text, job: Job, options: CallOptions) -> Text:
        self._used(options, job, text.nprompt, text.ngen)
        return Text(text.text, text.finishreason, text.nprompt, text.ngen, job.carried_by)

    # -- models and nodes

    async def models(self, node: str | None = None, *, deadline_s: float = CARE_S) -> list[ModelInfo]:
        """The models of one node, or of all; a model on two nodes is there twice. Raises NoNode."""
        return await care.models(self._running, node, self._deadline(deadline_s))

    async def health(self, node: str | None = None, *, deadline_s: float = CARE_S) -> list[Health]:
        """How one node is, or all of them. Raises NoNode."""
        return await care.health(self._running, node, self._deadline(deadline_s))

    async def probe(
        self,
        model: str,
        *,
        node: str | None = None,
        config: Mapping[str, str] | None = None,
        deadline_s: float = PROBE_S,
    ) -> str:
        """Tries a quarantined model now: `ok`, and it may be used again, or `quarantined`. An operator's."""
        return await care.probe(self._running, model, node, config, self._deadline(deadline_s))

    async def ingest(
        self,
        path: str | PurePath,
        alias: str,
        *,
        node: str | None = None,
        weights: Literal["asis", "fastest"] = "asis",
        config: Mapping[str, str] | None = None,
        progress: care.OnProgress | None = None,
        deadline_s: float = INGEST_S,
    ) -> Ingested:
        """Takes a file or folder of the node's own disk into its cache, under the alias. An operator's.

        `node`: needed where there are several. `weights`: "fastest" makes the type of weights that the node's
        CPU runs fastest. `config`: runtime keys of the alias. `progress` is called in the loop as it goes on.
        """
        return await care.ingest(
            self._running,
            path,
            alias,
            node=node,
            weights=weights,
            config=config,
            progress=progress,
            deadline=self._deadline(deadline_s),
        )

    # -- what all of them do

    async def _jobs(
        self,
        messages: Sequence[requests.WorkRequest],
        model: str,
        tokens: Sequence[float],
        options: CallOptions,
    ) -> list[Job]:
        """A job for each message, with one deadline for all."""
        alias, deadline = alias_of(model), self._deadline(options.get("deadline_s"))
        node = options.get("node")
        place = None if node in (None, ANY_NODE) else await self._running.find(node, deadline)
        bulk = options.get("work_class") == "bulk"
        above = options.get("traceparent")
        return [
            Job(type(message), alias, again(message), deadline, weight, bulk, place, traceparent=above)
            for message, weight in zip(messages, tokens, strict=True)
        ]

    def _used(self, options: CallOptions, job: Job, prompt: int, generated: int = 0) -> None:
        self.usage.add(job.carried_by, prompt, generated)
        if (usage := options.get("usage")) is not None:
            usage.add(job.carried_by, prompt, generated)


def _prompt(prompt: str | Ids) -> dict[str, Any]:
    return {"prompt": prompt} if isinstance(prompt, str) else {"data": ids_of(prompt, "prompt")}
