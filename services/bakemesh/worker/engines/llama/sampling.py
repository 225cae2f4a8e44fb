"""The next token: the likeliest or a sampled one, free or under a grammar.

A grammar is asked about the token that was chosen, and about the whole vocabulary only where it refuses that
one: the same tokens as masking first, at the speed of no grammar at all.

Sampling is numpy's, in the order top_k, top_p, min_p, temperature: llama.cpp's own samplers want the whole
vocabulary as an array of structures, which is a third of the time of a token of a small model.

Guarantees: no token that the grammar refuses is given (llama.cpp aborts on one); a grammar that cannot be
read is refused, never passed over; equal seeds give equal tokens. Left out: penalties, logit biases.
"""

from __future__ import annotations

import ctypes
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bakemesh.worker.engines.base import EngineError, Options
from bakemesh.worker.engines.llama.library import Library
from bakemesh.worker.engines.llama.schema import grammar as from_schema

Logits = NDArray[np.float32]
LONGEST_GRAMMAR = 256 * 1024
_TOKEN = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_HEADS = (1024, 16384)  # as many of the likeliest are looked at before all are sorted


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
        self._options = options
        self._random = None if is_greedy(options) else np.random.default_rng(seed_of(options))
        self._all: _Candidates | None = None
        self._one = _Candidates(self._api, 1)
        text = grammar_of(options)
        self.constrained = text is not None
        if text is not None:
            self._grammar = _grammar(library, vocab, text)

    def next(self, logits: Logits) -> int:
        """The next token; the grammar has not taken it yet. Raises inference_failed."""
        token = self._choose(logits)
        if self._grammar is None or self._allows(token):
            return token
        if self._all is None:
            self._all = _Candidates(self._api, self._n_vocab)
        allowed = self._all.masked(self._api, self._grammar, logits)
        if not np.isfinite(allowed).any():
            raise EngineError("inference_failed", "the grammar has no way on with this model's vocabulary")
        return self._choose(allowed)

    def accept(self, token: int) -> None:
        """The token is part of the text."""
        if self._grammar is not None:
            self._api.llama_sampler_accept(self._grammar, token)

    def close(self) -> None:
        """Gives its memory back."""
        if self._grammar:
            self._api.llama_sampler_free(self._grammar)
        self._grammar = None

    def _choose(self, logits: Logits) -> int:
        best = int(logits.argmax())
        if not math.isfinite(logits[best]):  # NaN is the largest to argmax
            raise EngineError("inference_failed", "the model computed numbers that are not finite")
        return best if self._random is None else pick(logits, self._options, float(self._random.random()))

    def _allows(self, token: int) -> bool:
        one = self._one
        one.view[0] = (token, 0.0, 0.0)
        one.raw.size = 1
        self._api.llama_sampler_apply(self._grammar, ctypes.byref(one.raw))
        return bool(np.isfinite(one.view["logit"][0]))


class _Candidates:
    """llama.cpp's array of candidates over memory of ours."""

    def __init__(self, api: Any, size: int) -> None:
        self._memory = (api.llama_token_data * size)()
        self.view = np.frombuffer(self._memory, _TOKEN)
        self._ids = np.arange(size, dtype=np.int32)
        self.raw = api.llama_token_data_array(self._memory, size, -1, False)
        self._data = self.raw.data

    def masked(self, api: Any, grammar: Any, logits: Logits) -> Logits:
        """The logits, −∞ where the grammar refuses the token."""
        self.view["id"], self.view["logit"] = self._ids, logits
        self.raw.data, self.raw.size, self.raw.selected, self.raw.sorted = (
            self._data,
            self._ids.size,
            -1,
            False,
        )
        api.llama_sampler_apply(grammar, ctypes.byref(self.raw))
        found = np.full_like(logits, -np.inf)
        found[self.view["id"][: self.raw.size]] = self.view["logit"][: self.raw.size]
        return found


def pick(logits: Logits, options: Options, chance: float) -> int:
    """The token at `chance` (0 to 1) of the sampled distribution."""
    ids, shares = distribution(logits, options)
    ids, shares = ids[shares > 0], shares[shares > 0]  # rounding must not reach what a grammar refused
    sums = np.cumsum(shares)
    return int(ids[min(int(np.searchsorted(sums, chance * sums[-1], side="right")), ids.size - 1)])


def distribution(logits: Logits, options: Options) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The tokens that may be sampled and their shares (not scaled to 1), in no certain order."""
    top_k, top_p, min_p = options.top_k or 0, options.top_p, options.min_p
    ids = np.argpartition(logits, -top_k)[-top_k:] if 0 < top_k < logits.size else np.arange(logits.size)
    values = logits[ids].astype(np.float64)
    best = values.max()
    if top_p is not None and top_p < 1:
        ids, values = _nucleus(ids, values, np.exp(values - best), top_p)
    if min_p:
        likely = values >= best + math.log(min_p)
        ids, values = ids[likely], values[likely]
    temperature = 1.0 if options.temperature is None else options.temperature
    return ids, np.exp((values - best) / temperature)


def _nucleus(
    ids: NDArray[np.int64], values: NDArray[np.float64], weights: NDArray[np.float64], top_p: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The fewest of the likeliest that have `top_p` of the weight together; one at least."""
    wanted = top_p * weights.sum()
    order = np.arange(ids.size)
    for size in _HEADS:
        if ids.size > 2 * size:
            head = np.argpartition(weights, -size)[-size:]
            if weights[head].sum() > wanted:
                order = head
                break
    order = order[np.argsort(-values[order], kind="stable")]
    count = int(np.searchsorted(np.cumsum(weights[order]), wanted)) + 1
    order = order[:count]
    return ids[order], values[order]


def seed_of(options: Options) -> int | None:
    """64 bits, or None: without a seed, or with -1, other tokens each time."""
    return None if options.seed is None or options.seed == -1 else options.seed & (2**64 - 1)


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
