"""The fake format: a model that is no model, for the fake engine of `bakemesh worker --engine fake`.

A file whose name ends in `.fake` holds a small JSON object:

    {"kind": "embed", "dims": 16, "context": 4096}

All entries may be left out. Its tokens are bytes, without special ones; its chats are their contents. With it
a whole module runs as it does with real models, and every answer can be computed by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.manifest import KINDS, Manifest, TokenizerFacts

SUFFIX = ".fake"
_MOST_BYTES = 65_536
_VOCABULARY, _CONTEXT, _DIMS = 32_000, 1 << 20, 8
_TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def manifest(path: Path, name: str, digest: str, size: int, config: Mapping[str, str]) -> Manifest:
    """Reads it. Raises ModelRefused, OSError."""
    if size > _MOST_BYTES:
        raise ModelRefused(
            Code.ARTIFACT_INVALID, f"{name}: {size} bytes; a fake model has {_MOST_BYTES} at most"
        )
    try:
        found = json.loads(path.read_bytes() or b"{}")
    except (ValueError, RecursionError) as error:
        raise ModelRefused(Code.ARTIFACT_INVALID, f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict) or (extra := found.keys() - {"kind", "dims", "context"}):
        what = f"has {', '.join(sorted(extra))}" if isinstance(found, dict) else "is no object"
        raise ModelRefused(Code.ARTIFACT_INVALID, f"{name} {what}; a fake model has kind, dims and context")
    kind = found.get("kind", KINDS[0])
    if kind not in KINDS:
        raise ModelRefused(Code.ARTIFACT_INVALID, f"{name}: kind {kind!r:.40} is none of {', '.join(KINDS)}")
    dims, context = _whole(name, found, "dims", _DIMS), _whole(name, found, "context", _CONTEXT)
    if dims % _DIMS:
        raise ModelRefused(Code.ARTIFACT_INVALID, f"{name}: dims {dims} is no multiple of {_DIMS}")
    return Manifest(
        digest=digest,
        source=digest,
        bytes=size,
        format="fake",
        architecture="fake",
        name=name.removesuffix(SUFFIX),
        kind=kind,
        dims=dims,
        vocabulary=_VOCABULARY,
        context=context,
        limit=context,
        pooling="rank" if kind == "rerank" else "mean",
        weights="none",
        tokenizer=TokenizerFacts(model="bytes", pre="default", source="fake"),
        template=_TEMPLATE,
        config={"dims": str(dims), "ctx_size": str(context), **config},
    )


def _whole(name: str, found: Mapping[str, Any], entry: str, default: int) -> int:
    value = found.get(entry, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 24:
        raise ModelRefused(Code.ARTIFACT_INVALID, f"{name}: {entry} {value!r:.40} is no whole number from 1")
    return value
