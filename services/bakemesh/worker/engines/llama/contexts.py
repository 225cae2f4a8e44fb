"""llama.cpp's contexts, and the batch that they read.

A context is made for one purpose and keeps it: vectors of one pooling, or generation. Guarantees: whatever is
handed to a context fits it, because its owner checks lengths against `capacity` first (llama.cpp aborts the
process on what does not fit); a context that cannot be made is an EngineError, `oom` where memory was short.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bakemesh.worker.engines.llama.library import Library

Ids = NDArray[np.int32]
POOLINGS = {"mean": 1, "cls": 2, "last": 3, "rank": 4}
FLASH = {"auto": -1, "disabled": 0, "enabled": 1}
SEQUENCES = 256  # as many as llama.cpp can tell apart


class Batch:
    """llama.cpp's batch over arrays of ours: filled by slices, without a loop over tokens."""

    def __init__(self, api: Any, capacity: int) -> None:
        self.capacity = capacity
        self._count = np.arange(capacity, dtype=np.int32)
        self._token = np.zeros(capacity, np.int32)
        self._position = np.zeros(capacity, np.int32)
        self._ones = np.ones(capacity, np.int32)
        self._sequence = np.zeros(capacity, np.int32)
        # A token's list of sequences: here one number each, all in one array.
        self._lists = self._sequence.ctypes.data + 4 * np.arange(capacity + 1, dtype=np.uint64)
        self._lists[capacity] = 0
        self._output = np.ones(capacity, np.int8)
        whole, small = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
        self.raw = api.llama_batch()
        self.raw.token = self._token.ctypes.data_as(whole)
        self.raw.embd = None
        self.raw.pos = self._position.ctypes.data_as(whole)
        self.raw.n_seq_id = self._ones.ctypes.data_as(whole)
        self.raw.seq_id = self._lists.ctypes.data_as(ctypes.POINTER(whole))
        self.raw.logits = self._output.ctypes.data_as(small)

    def fill(self, ids: Ids, lengths: Ids) -> None:
        """Sequences one after the other, each from position 0, every token an output."""
        total = self._sized(ids)
        begins = np.cumsum(lengths, dtype=np.int32) - lengths
        self._position[:total] = self._count[:total] - np.repeat(begins, lengths)
        self._sequence[:total] = np.repeat(self._count[: lengths.size], lengths)
        self._token[:total] = ids
        self._output[:total] = 1

    def continue_one(self, ids: Ids, position: int, *, output_last: bool) -> None:
        """The next tokens of sequence 0."""
        total = self._sized(ids)
        self._position[:total] = self._count[:total] + position
        self._sequence[:total] = 0
        self._token[:total] = ids
        self._output[:total] = 0
        self._output[total - 1] = output_last

    def _sized(self, ids: Ids) -> int:
        if not 0 < ids.size <= self.capacity:
            raise ValueError(f"{ids.size} tokens in a batch of {self.capacity}")
        self.raw.n_tokens = ids.size
        return int(ids.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a context is asked to be. `n_ctx`: tokens it holds; `capacity`: tokens of one call."""

    n_ctx: int
    capacity: int
    sequences: int
    threads: int
    flash: str
    pooling: str | None = None


class Context:
    """One llama.cpp context and its batch."""

    def __init__(self, library: Library, model: int, shape: Shape) -> None:
        api = library.api
        params = api.llama_context_default_params()
        params.n_ctx, params.n_seq_max = shape.n_ctx, shape.sequences
        params.n_batch = params.n_ubatch = shape.capacity
        params.n_threads = params.n_threads_batch = shape.threads
        params.flash_attn_type = FLASH[shape.flash]
        params.kv_unified, params.no_perf = True, True
        if shape.pooling is not None:
            params.embeddings, params.pooling_type = True, POOLINGS[shape.pooling]
        library.log.clear()
        handle = api.llama_init_from_model(model, params)
        if not handle:
            what = f"no context of {shape.n_ctx} tokens for {shape.pooling or 'generation'} can be made"
            raise library.log.error("config_invalid", what)
        self.library, self.shape, self.handle = library, shape, handle
        self.capacity = shape.capacity
        self.memory = api.llama_get_memory(handle)
        self.batch = Batch(api, shape.capacity)

    def decode(self) -> int:
        """Runs the batch: 0 done, 2 aborted; others are llama.cpp's."""
        return int(self.library.api.llama_decode(self.handle, self.batch.raw))

    def forget(self, begin: int = 0) -> bool:
        """Drops every position from `begin` on. False: this kind of memory cannot, and all was dropped."""
        api = self.library.api
        if begin > 0 and api.llama_memory_seq_rm(self.memory, 0, begin, -1):
            return True
        api.llama_memory_clear(self.memory, False)
        return begin == 0

    def close(self) -> None:
        """Gives its memory back."""
        if self.handle:
            self.library.api.llama_free(self.handle)
            self.handle = None
