"""The Engine on llama.cpp: one method a request, errors in the wire's words."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bakemesh.worker.config import RuntimeConfig
from bakemesh.worker.engines.base import Cancelled, Emit, EngineError, Generated, ModelFacts, Options
from bakemesh.worker.engines.llama import embedding, reranking
from bakemesh.worker.engines.llama.contexts import Ids
from bakemesh.worker.engines.llama.library import open_library
from bakemesh.worker.engines.llama.model import LlamaModel, load


class LlamaEngine:
    """GGUF models by llama.cpp, several side by side. See `Engine` for what each method takes and raises."""

    name = "llama"
    types: tuple[str, ...] = ("GENERATE_STREAM", "CANCEL", "MODEL_INFO")
    formats: tuple[str, ...] = ("gguf",)
    switches: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._library = open_library()
        self.version = self._library.version
        self.build_flags: dict[str, Any] = self._library.build_flags()

    def load(self, path_fd: int, path: str, format: str, config: Mapping[str, str]) -> LlamaModel:  # noqa: A002
        """Loads a GGUF file. Its contexts are made by the first requests that need them."""
        del format
        try:
            return load(self._library, path_fd, path, RuntimeConfig.of(config))
        except MemoryError as error:
            raise EngineError("oom", f"no memory for {path}: {error}") from error

    def embed(
        self, model: LlamaModel, pooling: str, normalize: bool, counts: Sequence[int], ids: memoryview
    ) -> memoryview:
        """len(counts) × dims float32."""
        rows = embedding.embed(model, pooling, normalize, counts, self._checked(model, ids))
        return rows.reshape(-1).data

    def rerank(self, model: LlamaModel, query_n: int, counts: Sequence[int], ids: memoryview) -> memoryview:
        """One logit a candidate."""
        scores = reranking.rerank(model, query_n, counts, self._checked(model, ids))
        return np.ascontiguousarray(scores).data

    def generate(
        self, model: LlamaModel, ids: memoryview, options: Options, emit: Emit | None, cancelled: Cancelled
    ) -> Generated:
        """Generates from the ids as they come."""
        generated: Generated = model.generation().run(self._checked(model, ids), options, emit, cancelled)
        return generated

    def info(self, model: LlamaModel) -> ModelFacts:
        """What the model is."""
        return model.facts

    def unload(self, model: LlamaModel) -> None:
        """Gives the memory back to the system, not only to the allocator."""
        model.close()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

    def _checked(self, model: LlamaModel, ids: memoryview) -> Ids:
        """The ids, each within the vocabulary: llama.cpp aborts on one that is not."""
        flat = np.frombuffer(ids, np.int32)
        if flat.size == 0:
            raise EngineError("bad_request", "no token ids")
        if flat.min() < 0 or flat.max() >= model.n_vocab:
            at = int(np.flatnonzero((flat < 0) | (flat >= model.n_vocab))[0])
            raise EngineError(
                "bad_request", f"token id {flat[at]} at {at} is none of the vocabulary's {model.n_vocab}"
            )
        return flat
