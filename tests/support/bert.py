"""A BERT's forward pass in numpy, written from the paper: what llama.cpp's vectors are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from support.models import BERT_SIZES, Weights

Array = NDArray[np.float64]


def states(weights: Weights, ids: Sequence[int], segments: Sequence[int] | None = None) -> Array:
    """The last layer's states, a row a token."""
    kinds = list(segments or [0] * len(ids))
    x = weights["token_embd.weight"][list(ids)] + weights["position_embd.weight"][: len(ids)]
    x = _norm(x + weights["token_types.weight"][kinds], weights, "token_embd_norm")
    for layer in range(BERT_SIZES["layers"]):
        at = f"blk.{layer}."
        x = _norm(x + _attention(weights, at, x), weights, f"{at}attn_output_norm")
        inner = _gelu(_linear(weights, f"{at}ffn_up", x))
        x = _norm(x + _linear(weights, f"{at}ffn_down", inner), weights, f"{at}layer_output_norm")
    return np.asarray(x, np.float64)


def pooled(weights: Weights, ids: Sequence[int], pooling: str) -> Array:
    """One vector, not normalized."""
    found = states(weights, ids)
    return {"mean": found.mean(axis=0), "cls": found[0], "last": found[-1]}[pooling]


def score(weights: Weights, ids: Sequence[int], segments: Sequence[int] | None = None) -> float:
    """The head's logit for a pair."""
    first = np.tanh(_linear(weights, "cls", states(weights, ids, segments)[:1]))
    return float(_linear(weights, "cls.output", first)[0, 0])


def _linear(weights: Weights, name: str, x: Array) -> Array:
    return np.asarray(x @ weights[f"{name}.weight"].T.astype(np.float64) + weights[f"{name}.bias"])


def _norm(x: Array, weights: Weights, name: str) -> Array:
    x = np.asarray(x, np.float64)
    spread = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-12)
    scaled = (x - x.mean(axis=-1, keepdims=True)) / spread
    return np.asarray(scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"])


def _attention(weights: Weights, at: str, x: Array) -> Array:
    heads = BERT_SIZES["heads"]
    q, k, v = (
        _linear(weights, f"{at}attn_{each}", x).reshape(len(x), heads, -1).transpose(1, 0, 2)
        for each in "qkv"
    )
    raw = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    shares = np.exp(raw - raw.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return _linear(weights, f"{at}attn_output", (shares @ v).transpose(1, 0, 2).reshape(len(x), -1))


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
