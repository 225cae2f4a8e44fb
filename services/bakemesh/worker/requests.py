"""One handler a request: checks what an engine must never see, asks it, makes the answer.

Guarantees: counts add up to the raw frame and every id is within the vocabulary before the engine hears of
them (llama.cpp aborts on some that are not); an answer that could not be sent is refused before it is
computed, where its size is known. Raises EngineError with the wire's code. Left out: the socket (`serving`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bakemesh.protocol.worker import headers as h
from bakemesh.worker import artifact, config
from bakemesh.worker.engines.base import Engine, EngineError, Options
from bakemesh.worker.memory import rss_mb
from bakemesh.worker.models import Models

Answer = tuple[Any, "memoryview | None"]


class BadRequest(EngineError):
    """Raised when a request contradicts itself or the model."""

    def __init__(self, msg: str) -> None:
        super().__init__("bad_request", msg)


class Live(NamedTuple):
    """What a handler may do while its request is in flight."""

    emit: Callable[[h.Token], None]
    cancelled: Callable[[], bool]
    max_frame: int


class Desk:
    """The engine with its loaded models."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.models = Models(engine)

    def answer(self, header: Any, data: memoryview | None, live: Live) -> Answer:
        """The answer to a request. Raises EngineError."""
        handler: Callable[[Desk, Any, memoryview | None, Live], Answer] = _HANDLERS[header.TYPE]
        return handler(self, header, data, live)


def _load(desk: Desk, asked: h.Load, _: memoryview | None, __: Live) -> Answer:
    began = time.monotonic()
    engine = desk.engine
    if asked.format not in engine.formats:
        can = ", ".join(engine.formats)
        raise config.ConfigInvalid(f"format {asked.format!r:.60} is none of this engine's: {can}")
    config.check(asked.runtime_config, engine.switches)
    allow = config.RuntimeConfig.of(asked.runtime_config).allow_unverified
    model = None
    try:
        with artifact.proven(asked.artifact_path, asked.artifact_digest, allow) as fd:
            model = engine.load(fd, asked.artifact_path, asked.format, asked.runtime_config)
    except artifact.ArtifactInvalid:
        if model is not None:
            engine.unload(model)
        raise
    took = round((time.monotonic() - began) * 1000)
    return h.Loaded(
        req_id=asked.req_id, model_ref=desk.models.keep(model), dims=model.dims, cold_load_ms=took
    ), None


def _embed(desk: Desk, asked: h.EmbedBatch, data: memoryview | None, live: Live) -> Answer:
    model = desk.models.get(asked.model_ref)
    counts = [each["n_tokens"] for each in asked.items]
    ids = _ids(data, counts, desk.engine.info(model).n_vocab)
    _fits(4 * len(counts) * model.dims, live)
    vectors = desk.engine.embed(model, asked.pooling, asked.normalize, counts, ids)
    _as_asked(vectors, 4 * len(counts) * model.dims)
    names = [each["id"] for each in asked.items]
    return h.Vectors(req_id=asked.req_id, dims=model.dims, n=len(counts), ids=names), vectors


def _rerank(desk: Desk, asked: h.Rerank, data: memoryview | None, live: Live) -> Answer:
    model = desk.models.get(asked.model_ref)
    counts = [each["n_tokens"] for each in asked.candidates]
    ids = _ids(data, [asked.query_n_tokens, *counts], desk.engine.info(model).n_vocab)
    _fits(4 * len(counts), live)
    scores = desk.engine.rerank(model, asked.query_n_tokens, counts, ids)
    _as_asked(scores, 4 * len(counts))
    return h.Scores(req_id=asked.req_id), scores


def _generate(desk: Desk, asked: h.Generate, data: memoryview | None, live: Live) -> Answer:
    options = Options(max_tokens=asked.max_tokens, grammar=asked.grammar or None)
    return _generated(desk, asked, data, options, live, streamed=False)


def _generate_stream(desk: Desk, asked: h.GenerateStream, data: memoryview | None, live: Live) -> Answer:
    options = Options(
        max_tokens=asked.max_tokens,
        grammar=asked.grammar or None,
        json_schema=asked.json_schema or None,
        temperature=asked.temperature,
        top_k=asked.top_k,
        top_p=asked.top_p,
        min_p=asked.min_p,
        seed=asked.seed,
        stop=tuple(each for each in asked.stop if each),
    )
    return _generated(desk, asked, data, options, live, streamed=True)


def _generated(
    desk: Desk,
    asked: h.Generate | h.GenerateStream,
    data: memoryview | None,
    options: Options,
    live: Live,
    *,
    streamed: bool,
) -> Answer:
    model = desk.models.get(asked.model_ref)
    total = 0 if data is None else data.nbytes // 4
    if not total:
        raise BadRequest("the prompt has no ids; one is the least")
    ids = _ids(data, [total], desk.engine.info(model).n_vocab)
    index = 0

    def emit(text: str) -> None:
        nonlocal index
        live.emit(h.Token(req_id=asked.req_id, index=index, text=text))
        index += 1

    found = desk.engine.generate(model, ids, options, emit if streamed else None, live.cancelled)
    return h.Text(
        req_id=asked.req_id,
        text=found.text,
        n_prompt=found.n_prompt,
        n_gen=found.n_gen,
        finish_reason=found.finish_reason,
    ), None


def _model_info(desk: Desk, asked: h.ModelInfo, _: memoryview | None, __: Live) -> Answer:
    found = desk.engine.info(desk.models.get(asked.model_ref))
    return h.Model(
        req_id=asked.req_id,
        architecture=found.architecture,
        dims=found.dims,
        n_vocab=found.n_vocab,
        n_ctx_train=found.n_ctx_train,
        pooling=found.pooling,
        rank_head=found.rank_head,
        chat_template=found.chat_template,
    ), None


def _unload(desk: Desk, asked: h.Unload, _: memoryview | None, __: Live) -> Answer:
    desk.models.drop(asked.model_ref)
    return h.Unloaded(req_id=asked.req_id), None


def _ping(desk: Desk, asked: h.Ping, _: memoryview | None, __: Live) -> Answer:
    return h.Pong(req_id=asked.req_id, rss_mb=rss_mb(), models_loaded=len(desk.models)), None


_HANDLERS: dict[str, Callable[..., Answer]] = {
    h.Load.TYPE: _load,
    h.EmbedBatch.TYPE: _embed,
    h.Rerank.TYPE: _rerank,
    h.Generate.TYPE: _generate,
    h.GenerateStream.TYPE: _generate_stream,
    h.ModelInfo.TYPE: _model_info,
    h.Unload.TYPE: _unload,
    h.Ping.TYPE: _ping,
}


# -- what an engine must never see


def _ids(data: memoryview | None, counts: Sequence[int], n_vocab: int) -> memoryview:
    size, total = 0 if data is None else data.nbytes, sum(counts)
    if data is None or size != 4 * total:
        raise BadRequest(f"the raw frame has {size} bytes; {total} ids of 4 bytes were announced")
    ids = data.cast("B").cast("i")
    if not all_within(data, n_vocab):
        at, wrong = next((at, each) for at, each in enumerate(ids) if not 0 <= each < n_vocab)
        raise BadRequest(f"id {wrong} (number {at}) is outside the vocabulary: 0 to {n_vocab - 1}")
    return ids


def all_within(data: memoryview, n_vocab: int) -> bool:
    """Whether every i32 in these bytes is from 0 to n_vocab - 1.

    All at once, as one large number of 32-bit lanes: a quarter of the time of looking at each. A negative id
    has its lane's top bit set; one that is too large gets it when 2^31 - n_vocab is added to every lane, and
    no lane carries into the next.
    """
    lanes = data.nbytes // 4
    ids = int.from_bytes(data, "little")
    top = int.from_bytes(b"\0\0\0\x80" * lanes, "little")
    more = int.from_bytes(((1 << 31) - n_vocab).to_bytes(4, "little") * lanes, "little")
    return not ids & top and not (ids + more) & top


def _fits(size: int, live: Live) -> None:
    if size > live.max_frame:
        raise BadRequest(f"the answer would have {size} bytes; at most {live.max_frame} were agreed")


def _as_asked(found: memoryview, size: int) -> None:
    if found.nbytes != size:
        raise EngineError("inference_failed", f"the engine gave {found.nbytes} bytes; {size} are an answer")
