"""What can be asked of a lane, one function a verb: its message to the pool's answer, as a message.

Each raises WorkerPoolError or PullFailed where there is none. The lane is the asker's own by then (`desk`),
so whatever the pool does for it, is done there. Left out: who may ask when, and how an answer travels.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bakemesh.lanes.models import Models
from bakemesh.protocol.inference import lanes as m
from bakemesh.protocol.inference.answers import Answer
from bakemesh.workerpool import (
    Artifact,
    BadRequest,
    Call,
    ModelKey,
    ModelUnknown,
    Pool,
    Sampling,
    Share,
    Text,
    Vectors,
    WorkerPoolError,
    error_object,
)
from bakemesh.workerpool.lane import Lane

_ENVELOPE = 2048  # of an answer, beside its rows


@dataclass(frozen=True, slots=True)
class Asked:
    """One request at its lane. `token`: gives the asker a piece of a stream, `most`: the largest answer."""

    id: bytes
    lane: Lane
    call: Call
    most: int
    token: Callable[[int, str], None]


Verb = Callable[["Verbs", Any, Asked], Awaitable[Answer]]


class Verbs:
    """Of one lane host; `TABLE` has them by the type of the request."""

    def __init__(self, pool: Pool, models: Models) -> None:
        self._pool, self._models = pool, models

    async def load(self, request: m.LoadModel, asked: Asked) -> Answer:
        """Loaded, or why it cannot be."""
        key = await self._models.ready(asked.lane, request, asked.call)
        loaded = await self._pool.load(self._artifact(key), request.config, asked.call)
        return m.LaneLoaded(request=asked.id, dims=loaded.dims, cold_load_ms=loaded.cold_load_ms)

    async def embed(self, request: m.EmbedBatch, asked: Asked) -> Answer:
        """The rows of the shares that have no error, and the errors of the others."""
        shares = _shares(request)
        key = await self._models.ready(asked.lane, request, asked.call)
        _fits(len(request.counts), asked.lane.dims.get(key, 0), asked.most)
        pooling, normalize = request.pooling, request.normalize
        if len(shares) == 1:
            vectors = await self._pool.embed(
                key, shares[0], pooling=pooling, normalize=normalize, call=asked.call
            )
            return _vectors(asked.id, [vectors])
        found = await self._pool.embed_batch(
            key, shares, pooling=pooling, normalize=normalize, call=asked.call
        )
        return _vectors(asked.id, found)

    async def rerank(self, request: m.LaneRerank, asked: Asked) -> Answer:
        """A score a candidate."""
        wanted = 4 * (request.query_n_tokens + sum(request.counts))
        if len(request.data) != wanted:
            raise BadRequest(f"{len(request.data)} bytes of ids; query and candidates have {wanted}")
        key = await self._models.ready(asked.lane, request, asked.call)
        scores = await self._pool.rerank(
            key, request.query_n_tokens, request.counts, request.data, call=asked.call
        )
        return m.LaneScores(request=asked.id, data=bytes(scores))

    async def generate(self, request: m.LaneGenerate, asked: Asked) -> Answer:
        """Its text."""
        key = await self._models.ready(asked.lane, request, asked.call)
        text = await self._pool.generate(
            key, request.data, request.max_tokens, grammar=request.grammar, call=asked.call
        )
        return _text(asked.id, text)

    async def stream(self, request: m.LaneGenerateStream, asked: Asked) -> Answer:
        """Its tokens, and the text at last."""
        key = await self._models.ready(asked.lane, request, asked.call)
        sampling = Sampling(
            grammar=request.grammar,
            json_schema=request.json_schema,
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            min_p=request.min_p,
            seed=request.seed,
            stop=tuple(request.stop or ()),
        )
        text: Text | None = None
        async for each in self._pool.generate_stream(
            key, request.data, request.max_tokens, sampling, call=asked.call
        ):
            if isinstance(each, Text):
                text = each
            else:
                asked.token(each.index, each.text)
        assert text is not None  # a stream ends by its text or an error
        return _text(asked.id, text)

    async def info(self, request: m.LaneModelInfo, asked: Asked) -> Answer:
        """What the model is."""
        key = await self._models.ready(asked.lane, request, asked.call)
        info = await self._pool.info(key, call=asked.call)
        return m.LaneModel(
            request=asked.id,
            architecture=info.architecture,
            dims=info.dims,
            n_vocab=info.n_vocab,
            n_ctx_train=info.n_ctx_train,
            pooling=info.pooling,
            rank_head=info.rank_head,
            chat_template=info.chat_template,
        )

    async def probe(self, request: m.LaneProbe, asked: Asked) -> Answer:
        """Whether it is free on this host now."""
        key = await self._models.ready(asked.lane, request, asked.call)
        passed = await self._pool.probe(key, asked.call)
        return m.LaneProbed(request=asked.id, state="ok" if passed else "quarantined")

    async def unload(self, request: m.LaneUnload, asked: Asked) -> Answer:
        """It is not loaded in this lane any more."""
        await self._pool.unload(self._models.key_of(request), asked.call)
        return m.LaneUnloaded(request=asked.id)

    def _artifact(self, key: ModelKey) -> Artifact:
        artifact = self._pool.artifact(key)
        if artifact is None:
            raise ModelUnknown(f"model {key.id} was forgotten meanwhile: ask again")
        return artifact


TABLE: dict[str, Verb] = {
    m.LoadModel.TYPE: Verbs.load,
    m.EmbedBatch.TYPE: Verbs.embed,
    m.LaneRerank.TYPE: Verbs.rerank,
    m.LaneGenerate.TYPE: Verbs.generate,
    m.LaneGenerateStream.TYPE: Verbs.stream,
    m.LaneModelInfo.TYPE: Verbs.info,
    m.LaneProbe.TYPE: Verbs.probe,
    m.LaneUnload.TYPE: Verbs.unload,
}


def _shares(request: m.EmbedBatch) -> list[Share]:
    """The callers' parts of the batch. Raises BadRequest."""
    counts = request.counts
    if len(request.data) != 4 * sum(counts):
        raise BadRequest(f"{len(request.data)} bytes of ids for {sum(counts)} tokens; each is 4 bytes")
    if request.shares is None:
        return [Share(counts, request.data)]
    if sum(request.shares) != len(counts):
        raise BadRequest(f"shares of {sum(request.shares)} items in all, in a batch of {len(counts)}")
    data, out, item, at = memoryview(request.data), list[Share](), 0, 0
    for items in request.shares:
        part = counts[item : item + items]
        end = at + 4 * sum(part)
        out.append(Share(part, data[at:end]))
        item, at = item + items, end
    return out


def _fits(rows: int, dims: int, most: int) -> None:
    """Raises BadRequest where the answer would be larger than the server takes: before the work is done."""
    width = 4 * dims
    if rows * width + _ENVELOPE > most:
        raise BadRequest(
            f"the answer to {rows} items would be {rows * width} bytes of vectors; the server takes {most} "
            f"(max_payload): ask for at most {max(0, most - _ENVELOPE) // width} at once"
        )


def _vectors(request: bytes, found: Sequence[Vectors | WorkerPoolError]) -> m.LaneVectors:
    rows = [each for each in found if isinstance(each, Vectors)]
    failed = [
        {"share": share, **_entries(each)}
        for share, each in enumerate(found)
        if isinstance(each, WorkerPoolError)
    ]
    return m.LaneVectors(
        request=request,
        n=sum(each.n for each in rows),
        dims=rows[0].dims if rows else 0,
        data=bytes(rows[0].data) if len(rows) == 1 else b"".join(each.data for each in rows),
        failed=failed or None,
    )


def _entries(error: WorkerPoolError) -> dict[str, Any]:
    """The entries of an Error, as they are on the wire."""
    message = m.LaneError.of(bytes(16), error_object(error))
    return {name: value for name, value in message.entries().items() if name != "request"}


def _text(request: bytes, text: Text) -> m.LaneText:
    return m.LaneText(
        request=request,
        text=text.text,
        n_prompt=text.n_prompt,
        n_gen=text.n_gen,
        finish_reason=text.finish_reason,
    )
