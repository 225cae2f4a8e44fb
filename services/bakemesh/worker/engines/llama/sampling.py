"""The next token: the likeliest or a sampled one, free or under a grammar.

A grammar is asked about the token that was chosen, and about the whole vocabulary only where it refuses that
one: the same tokens as masking first, at the speed of no grammar at all.

Guarantees: no token that the grammar refuses is given (llama.cpp aborts on one); a grammar that cannot be
read is refused, never passed over; equal seeds give equal tokens. Left out: penalties, logit biases.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bakemesh.worker.engines.base import EngineError, Options
from bakemesh.worker.engines.llama.library import Library
from bakemesh.worker.engines.llama.schema import grammar as from_schema

LONGEST_GRAMMAR = 256 * 1024
_TOKEN = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_RANDOM_SEED = 0xFFFFFFFF  # llama.cpp takes this one for "any"


def is_greedy(options: Options) -> bool:
    """Greedy unless a temperature, or a way to sample, is given."""
    if options.temperature is not None:
        return options.temperature == 0
    return options.top_k is None and options.top_p is None and options.min_p is None


def check(options: Options) -> None:
    """Raises bad_request for numbers that mean nothing."""
    bounds: tuple[tuple[str, float | None, float, float], ...] = (
        ("temperature", options.temperature, 0.0, 100.0),
        ("top_p", options.top_p, 0.0, 1.0),
        ("min_p", options.min_p, 0.0, 1.0),
        ("top_k", options.top_k, -1, 2**31 - 1),
        ("seed", options.seed, -(2**63), 2**64 - 1),
    )
    for name, value, least, most in bounds:
        if value is not None and not least <= value <= most:
            raise EngineError("bad_request", f"{name} must be from {least:g} to {most:g}, not {value:g}")
    if options.grammar and options.json_schema:
        raise EngineError("bad_request", "grammar and json_schema exclude each other")


class Sampler:
    """Chooses tokens of one generation. `close` it: it holds memory of llama.cpp's."""

    def __init__(self, library: Library, vocab: Any, n_vocab: int, options: Options) -> None:
        check(options)
        self._api, self._n_vocab = library.api, n_vocab
        self._grammar: Any = None
        self._chain: Any = None
        self._all: _Candidates | None = None
        self._one = _Candidates(self._api, 1)
        text = grammar_of(options)
        self.constrained = text is not None
        if text is not None:
            self._grammar = _grammar(library, vocab, text)
        if not is_greedy(options):
            self._chain = self._sampled(options)

    def next(self, logits: NDArray[np.float32]) -> int:
        """The next token; the grammar has not taken it yet. Raises inference_failed."""
        token = self._choose(logits)
        if self._grammar is None or self._allows(token):
            return token
        candidates = self._filled(logits)
        self._api.llama_sampler_apply(self._grammar, ctypes.byref(candidates.raw))
        if not np.isfinite(candidates.view["logit"][: candidates.raw.size]).any():
            raise EngineError("inference_failed", "the grammar has no way on with this model's vocabulary")
        return self._pick(candidates)

    def accept(self, token: int) -> None:
        """The token is part of the text."""
        if self._grammar is not None:
            self._api.llama_sampler_accept(self._grammar, token)

    def close(self) -> None:
        """Gives its memory back."""
        for each in (self._grammar, self._chain):
            if each:
                self._api.llama_sampler_free(each)
        self._grammar = self._chain = None

    def _choose(self, logits: NDArray[np.float32]) -> int:
        best = int(logits.argmax())
        if not math.isfinite(logits[best]):  # NaN is the largest to argmax
            raise EngineError("inference_failed", "the model computed numbers that are not finite")
        return best if self._chain is None else self._pick(self._filled(logits))

    def _allows(self, token: int) -> bool:
        one = self._one
        one.view[0] = (token, 0.0, 0.0)
        one.raw.size = 1
        self._api.llama_sampler_apply(self._grammar, ctypes.byref(one.raw))
        return bool(np.isfinite(one.view["logit"][0]))

    def _filled(self, logits: NDArray[np.float32]) -> _Candidates:
        if self._all is None:
            self._all = _Candidates(self._api, self._n_vocab)
        self._all.fill(logits)
        return self._all

    def _pick(self, candidates: _Candidates) -> int:
        if self._chain is None:
            return int(candidates.view["id"][candidates.view["logit"].argmax()])
        self._api.llama_sampler_apply(self._chain, ctypes.byref(candidates.raw))
        if not 0 <= candidates.raw.selected < candidates.raw.size:
            raise EngineError("inference_failed", "no token can be sampled from what the model computed")
        return int(candidates.raw.data[candidates.raw.selected].id)

    def _sampled(self, options: Options) -> Any:
        api = self._api
        chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        if options.top_k is not None and options.top_k > 0:
            api.llama_sampler_chain_add(chain, api.llama_sampler_init_top_k(options.top_k))
        if options.top_p is not None:
            api.llama_sampler_chain_add(chain, api.llama_sampler_init_top_p(options.top_p, 1))
        if options.min_p is not None:
            api.llama_sampler_chain_add(chain, api.llama_sampler_init_min_p(options.min_p, 1))
        temperature = 1.0 if options.temperature is None else options.temperature
        api.llama_sampler_chain_add(chain, api.llama_sampler_init_temp(temperature))
        api.llama_sampler_chain_add(chain, api.llama_sampler_init_dist(seed_of(options)))
        return chain


class _Candidates:
    """llama.cpp's array of candidates over memory of ours."""

    def __init__(self, api: Any, size: int) -> None:
        self._memory = (api.llama_token_data * size)()
        self.view = np.frombuffer(self._memory, _TOKEN)
        self._ids = np.arange(size, dtype=np.int32)
        self.raw = api.llama_token_data_array(self._memory, size, -1, False)
        self._data = self.raw.data

    def fill(self, logits: NDArray[np.float32]) -> None:
        """Every token with its logit, in order."""
        self.view["id"], self.view["logit"] = self._ids, logits
        self.raw.data, self.raw.size, self.raw.selected, self.raw.sorted = (
            self._data,
            self._ids.size,
            -1,
            False,
        )


def seed_of(options: Options) -> int:
    """32 bits; without a seed, or with -1, other ones each time."""
    if options.seed is None or options.seed == -1:
        seed = int.from_bytes(os.urandom(4), "little")
    else:
        seed = options.seed & 0xFFFFFFFF
    return seed if seed != _RANDOM_SEED else 0


def grammar_of(options: Options) -> str | None:
    """The GBNF text that is asked for; an empty one is none. Raises bad_request."""
    if options.json_schema:
        return _from_schema(options.json_schema)
    return options.grammar or None


def _from_schema(schema: str) -> str:
    try:
        return from_schema(json.loads(schema))
    except (ValueError, RecursionError) as error:  # SchemaRefused is a ValueError
        raise EngineError("bad_request", f"json_schema: {error}") from None


def _grammar(library: Library, vocab: Any, text: str) -> Any:
    if len(text) > LONGEST_GRAMMAR:
        raise EngineError(
            "bad_request", f"the grammar has {len(text)} characters; at most {LONGEST_GRAMMAR} are read"
        )
    if "\0" in text:
        raise EngineError("bad_request", "the grammar has a NUL character")
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise EngineError("bad_request", f"the grammar is no text: {error}") from None
    library.log.clear()
    made = library.api.llama_sampler_init_grammar(vocab, encoded, b"root")
    if not made:
        raise EngineError(
            "bad_request",
            f"the grammar cannot be read: {library.log.complaints() or 'is there a rule root?'}",
        )
    return made
