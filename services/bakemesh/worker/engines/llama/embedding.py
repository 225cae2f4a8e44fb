"""Items to vectors: encodes of many sequences, pooled by llama.cpp.

Guarantees: rows in the order of the items; an item's vector does not depend on its neighbours (beyond the
rounding of the arithmetic); nothing that is not finite leaves. Encodes gather whole items up to 256 tokens,
in the order they came: that is the fastest on a CPU, and sorting by length is not (docs/engine.md).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bakemesh.worker.engines.base import EngineError
from bakemesh.worker.engines.llama.contexts import SEQUENCES, Context, Ids
from bakemesh.worker.engines.llama.model import LlamaModel

Rows = NDArray[np.float32]


def cut(counts: Sequence[int], tokens: int, sequences: int = SEQUENCES) -> Iterator[tuple[int, int]]:
    """Cuts items into encodes: (first, behind last). One item alone may be longer than `tokens`."""
    begin, held = 0, 0
    for index, count in enumerate(counts):
        if index > begin and (held + count > tokens or index - begin >= sequences):
            yield begin, index
            begin, held = index, 0
        held += count
    if begin < len(counts):
        yield begin, len(counts)


def embed(model: LlamaModel, pooling: str, normalize: bool, counts: Sequence[int], ids: Ids) -> Rows:
    """len(counts) × dims. Raises EngineError: bad_request, oom, inference_failed."""
    if pooling == "rank":
        raise EngineError("bad_request", "rank is no pooling for vectors; ask for RERANK")
    rows = run(model, pooling, counts, ids, model.dims)
    if normalize:
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        np.divide(rows, norms, out=rows, where=norms > 0)
    return rows


def run(model: LlamaModel, pooling: str, counts: Sequence[int], ids: Ids, width: int) -> Rows:
    """The first `width` numbers of each item's pooled output."""
    model.check({f"item {index}": count for index, count in enumerate(counts) if count > model.limit})
    context = model.pooled(pooling, max(counts))
    lengths = np.asarray(counts, np.int32)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))
    rows = np.empty((len(counts), width), np.float32)
    for begin, end in cut(counts, model.encode_tokens):
        _encode(context, ids[ends[begin] : ends[end]], lengths[begin:end], rows[begin:end])
    if not np.isfinite(rows).all():
        raise EngineError("inference_failed", "the model computed numbers that are not finite")
    return rows


def _encode(context: Context, ids: Ids, lengths: Ids, rows: Rows) -> None:
    library = context.library
    library.log.clear()
    if context.memory:
        context.forget()
    context.batch.fill(ids, lengths)
    answer = context.decode()
    if answer:
        raise library.log.error("inference_failed", f"llama.cpp cannot encode {ids.size} tokens ({answer})")
    row_bytes = rows.shape[1] * 4
    at = rows.ctypes.data
    for sequence in range(lengths.size):
        found = library.api.llama_get_embeddings_seq(context.handle, sequence)
        if not found:
            raise library.log.error("inference_failed", f"no vector for item {sequence} of an encode")
        ctypes.memmove(at + sequence * row_bytes, found, row_bytes)
