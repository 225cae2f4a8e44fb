"""What follows from a header: whether the model can be used, what for, how. Pure.

Rerankers are refused by name where the engine's scores would not be the model's (the same rules as a
worker's, so that an ingest tells what a LOAD would): see `unfaithful`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.numerals import whole
from bakemesh.synapse.models.architectures import ENCODERS, OTHERS, TEXT
from bakemesh.synapse.models.errors import ModelRefused
from bakemesh.synapse.models.header import Header
from bakemesh.synapse.models.manifest import Kind

GENERATION_CONTEXT = 4096  # of prompt and generation together, where nobody said otherwise
_POOLINGS = {0: None, 1: "mean", 2: "cls", 3: "last", 4: "rank"}
_ASKED = ("mean", "cls", "last", "rank")
_ANYWAY = "config.allow_unfaithful=yes takes it all the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """See Manifest, whose entries these are."""

    architecture: str
    name: str
    kind: Kind
    dims: int
    vocabulary: int
    context: int
    limit: int
    pooling: str
    weights: str
    template: str | None
    config: dict[str, str]
    unfaithful: str | None


def judge(header: Header, config: Mapping[str, str], file: str) -> Judged:
    """Raises ModelRefused."""
    architecture = header.text("general.architecture") or ""
    _architecture(architecture)
    if (parts := header.whole("split.count") or 1) > 1:
        raise _invalid(
            f"one of {parts} parts of a model; merge them into one file (llama-gguf-split --merge)"
        )
    if not header.tensors:
        raise _invalid("it has no weights: a vocabulary alone")
    context = _size(header, architecture, "context_length")
    tokens = header.texts("tokenizer.ggml.tokens")
    if not tokens:
        raise _invalid("it has no vocabulary (tokenizer.ggml.tokens)")
    kind, pooling = _purpose(header, architecture, config)
    unfaithful = None
    if kind == "rerank":
        unfaithful = _rerank(header, architecture, config)
    known = dict(config)
    if kind == "generate":
        known.setdefault("ctx_size", str(min(context, GENERATION_CONTEXT)))
    elif _pooling(header, architecture) != pooling:
        known["pooling"] = pooling
    return Judged(
        architecture=architecture,
        name=(header.text("general.name") or file.removesuffix(".gguf"))[:200],
        kind=kind,
        dims=header.whole(f"{architecture}.embedding_length_out")
        or _size(header, architecture, "embedding_length"),
        vocabulary=len(tokens),
        context=context,
        limit=_limit(context, known),
        pooling=pooling,
        weights=weights_of(header),
        template=header.text("tokenizer.chat_template"),
        config=known,
        unfaithful=unfaithful,
    )


def weights_of(header: Header) -> str:
    """The type that most bytes of the weights have, in small letters: f16, q4_k, …"""
    sizes: dict[str, int] = {}
    for tensor in header.tensors.values():
        sizes[tensor.type.name] = sizes.get(tensor.type.name, 0) + tensor.size
    return max(sizes, key=lambda name: sizes[name]).lower()


def _architecture(name: str) -> None:
    if name in OTHERS:
        raise ModelRefused(
            Code.CAPABILITY_ABSENT, f"architecture {name}: {OTHERS[name]}, which is not served"
        )
    if name not in TEXT:
        raise _invalid(f"architecture {name!r:.60} is none that the engine has")


def _size(header: Header, architecture: str, name: str) -> int:
    found = header.whole(f"{architecture}.{name}")
    if found is None or not 1 <= found <= 1 << 31:
        raise _invalid(f"{architecture}.{name} is {found}: a whole number from 1 is meant")
    return found


def _pooling(header: Header, architecture: str) -> str | None:
    return _POOLINGS.get(header.whole(f"{architecture}.pooling_type") or 0)


def _purpose(header: Header, architecture: str, config: Mapping[str, str]) -> tuple[Kind, str]:
    asked, own = config.get("pooling"), _pooling(header, architecture)
    if asked is not None and asked not in _ASKED:
        raise ModelRefused(
            Code.CONFIG_INVALID, f"config.pooling {asked!r:.40}: one of {', '.join(_ASKED)} is meant"
        )
    pooling = asked or own
    if pooling is None and _head(header):
        pooling = "rank"
    if pooling == "rank":
        return "rerank", "rank"
    encodes = architecture in ENCODERS or not header.flag(f"{architecture}.attention.causal", True)
    if pooling is None and not encodes:
        return "generate", "none"
    return "embed", pooling or "mean"


def _head(header: Header) -> bool:
    lone = header.tensors.get("cls.weight")  # a head of one layer, where it has one output
    return "cls.output.weight" in header.tensors or (lone is not None and lone.shape[1:2] == (1,))


def _rerank(header: Header, architecture: str, config: Mapping[str, str]) -> str | None:
    if not _head(header):
        raise ModelRefused(
            Code.CONFIG_INVALID,
            f"{architecture}: no classification head (no tensor cls.output.weight): its scores would mean "
            "nothing",
        )
    why = unfaithful(header, architecture)
    if why is not None and config.get("allow_unfaithful") != "yes":
        raise ModelRefused(Code.CONFIG_INVALID, f"{architecture}: {why}; {_ANYWAY}")
    return why


def unfaithful(header: Header, architecture: str) -> str | None:
    """Why a reranker's scores would not be the model's; None: nothing is known."""
    if architecture.startswith("qwen3"):
        return "rerankers of the Qwen3 kind are asked by a template that is not built here"
    causal = header.flag(f"{architecture}.attention.causal", True)
    if causal or header.text("tokenizer.chat_template.rerank") is not None:
        return "this reranker is asked by a template, not by a plain pair"
    types = header.tensors.get("token_types.weight")
    if types is not None and len(types.shape) > 1 and types.shape[1] > 1:
        return (
            f"trained with {types.shape[1]} segment types, of which llama.cpp uses the first alone; "
            "scores and their order would differ"
        )
    labels = header.texts(f"{architecture}.classifier.output_labels") or []
    if len(labels) > 1:
        return f"{len(labels)} labels, where a score has one"
    return None


def _limit(context: int, config: Mapping[str, str]) -> int:
    found = context
    for key in ("ctx_size", "batch_size", "ubatch_size"):
        if key in config:
            size = whole(config[key], digits=9)
            if size is None or (size == 0 and key != "ctx_size"):
                raise ModelRefused(
                    Code.CONFIG_INVALID, f"config.{key} {config[key]!r:.40}: a whole number is meant"
                )
            found = min(found, size or found)
    return found


def _invalid(what: str) -> ModelRefused:
    return ModelRefused(Code.ARTIFACT_INVALID, what)


def entries(judged: Judged) -> dict[str, Any]:
    """As JSON has it."""
    return {name: getattr(judged, name) for name in Judged.__dataclass_fields__}
