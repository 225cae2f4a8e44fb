"""A loaded model, and the contexts that it has.

Guarantees: at most one context for each pooling and one for generation, each made when it is first needed and
kept; `close` gives all of it back. A model that would not be faithful is refused before its weights are read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bakemesh.worker.config import RuntimeConfig
from bakemesh.worker.engines.base import EngineError, ModelFacts
from bakemesh.worker.engines.llama import faith
from bakemesh.worker.engines.llama.contexts import SEQUENCES, Context, Shape
from bakemesh.worker.engines.llama.header import Header, read
from bakemesh.worker.engines.llama.library import Library

ENCODE_TOKENS = 256  # tokens of one encode: more is slower (attention is computed over all of them)
PREFILL_TOKENS = 64  # tokens of one prefill step, and what a kept prefix is cut to
DEFAULT_CTX = 4096


class LlamaModel:
    """A model in memory. `limit`: tokens of the longest item; `n_ctx`: of prompt and generation together."""

    def __init__(self, library: Library, handle: int, header: Header, config: RuntimeConfig) -> None:
        api = library.api
        self.library, self.handle, self.header, self.config = library, handle, header, config
        self.vocab = api.llama_model_get_vocab(handle)
        self.n_vocab = int(api.llama_vocab_n_tokens(self.vocab))
        self.dims = int(api.llama_model_n_embd_out(handle))
        self.threads = config.threads or 1
        self.ranks = faith.wants_rank(header, config.pooling)
        self.pieces: dict[int, bytes] = {}  # a token's text, as it was first asked for
        trained = int(api.llama_model_n_ctx_train(handle))
        wanted = trained if config.ctx_size in (None, 0) else min(trained, config.ctx_size or 0)
        self.limit = min(wanted, config.batch_size or wanted, config.ubatch_size or wanted)
        self.n_ctx = min(trained, DEFAULT_CTX) if config.ctx_size is None else wanted
        self.prefill = min(PREFILL_TOKENS, config.batch_size or 1 << 30, config.ubatch_size or 1 << 30)
        self._pooled: dict[str, Context] = {}
        self._generation: Any = None
        self.facts = ModelFacts(
            architecture=header.architecture,
            dims=self.dims,
            n_vocab=self.n_vocab,
            n_ctx_train=trained,
            pooling=config.pooling or header.pooling or "none",
            rank_head=header.head,
            chat_template=header.chat_template,
        )

    @property
    def encode_tokens(self) -> int:
        """How many tokens an encode gathers before it runs."""
        return min(
            ENCODE_TOKENS, self.config.batch_size or ENCODE_TOKENS, self.config.ubatch_size or ENCODE_TOKENS
        )

    def pooled(self, pooling: str, longest: int) -> Context:
        """The context of that pooling, made anew, wider, where an item is longer than any before."""
        found = self._pooled.get(pooling)
        if found is not None and found.capacity >= longest:
            return found
        if found is not None:
            del self._pooled[pooling]
            found.close()
        capacity = self.encode_tokens
        while capacity < longest:
            capacity *= 2
        capacity = max(longest, min(capacity, max(self.limit, self.encode_tokens)))
        shape = Shape(
            n_ctx=capacity,
            capacity=capacity,
            sequences=min(SEQUENCES, capacity),
            threads=self.threads,
            flash=self.config.flash_attention,
            pooling=pooling,
        )
        made = self._pooled[pooling] = Context(self.library, self.handle, shape)
        return made

    def generation(self) -> Any:
        """The context that generates, with the prompt that it kept."""
        if self._generation is None:
            from bakemesh.worker.engines.llama.generating import Generation

            self._generation = Generation(self)
        return self._generation

    def check(self, counts: Mapping[str, int]) -> None:
        """Raises bad_request for an item that is longer than the model, or than what it was loaded for."""
        for what, count in counts.items():
            if count > self.limit:
                raise EngineError(
                    "bad_request",
                    f"{what} has {count} tokens; this model takes at most {self.limit} "
                    f"(trained for {self.facts.n_ctx_train}; ctx_size, batch_size, ubatch_size make it less)",
                )

    def piece(self, token: int) -> bytes:
        """A token's bytes; control tokens have none."""
        known = self.pieces.get(token)
        if known is None:
            known = self.pieces[token] = self._piece(token)
        return known

    def _piece(self, token: int) -> bytes:
        import ctypes

        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = self.library.api.llama_token_to_piece(self.vocab, token, buffer, size, 0, False)
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def close(self) -> None:
        """Gives contexts and weights back."""
        for each in self._pooled.values():
            each.close()
        self._pooled.clear()
        if self._generation is not None:
            self._generation.close()
            self._generation = None
        if self.handle:
            self.library.api.llama_model_free(self.handle)
            self.handle = 0


def load(library: Library, fd: int, path: str, config: RuntimeConfig) -> LlamaModel:
    """Reads header and weights. Raises EngineError: artifact_invalid, config_invalid, oom."""
    opened = f"/proc/self/fd/{fd}"  # the very file whose digest was proven, whatever the path is by now
    if not Path(opened).exists():
        opened = path
    header = read(library, opened)
    _refuse(header, config)
    api = library.api
    params = api.llama_model_default_params()
    params.check_tensors = True  # weights that are NaN are no model
    if config.gpu_layers is not None:
        params.n_gpu_layers = config.gpu_layers
    library.log.clear()
    handle = api.llama_model_load_from_file(os.fsencode(opened), params)
    if not handle:
        raise library.log.error("artifact_invalid", f"llama.cpp cannot load it ({header.architecture})")
    try:
        if api.llama_model_has_encoder(handle) and api.llama_model_has_decoder(handle):
            raise EngineError("config_invalid", f"{header.architecture}: models of two halves are not served")
        return LlamaModel(library, handle, header, config)
    except BaseException:
        api.llama_model_free(handle)
        raise


def _refuse(header: Header, config: RuntimeConfig) -> None:
    if header.parts > 1:
        raise EngineError(
            "artifact_invalid", f"one of {header.parts} parts of a model; merge them into one file"
        )
    if faith.wants_rank(header, config.pooling):
        why = faith.refusal(header, allow_unfaithful=config.allow_unfaithful)
        if why is not None:
            raise EngineError("config_invalid", why)
