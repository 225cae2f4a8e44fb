"""Which models cannot rerank as they were trained to, and why. Pure.

llama.cpp computes a score for every model that is asked for one. Three kinds of answer are not the model's:

- without a classification head it is the first number of a hidden state: refused always;
- a model that was trained with two segment types gets type 0 for every token (llama.cpp has no other), which
  moves scores and changes the order;
- a causal reranker (the Qwen3 kind) is asked by a template around the pair, which is not built here.

The latter two load where `allow_unfaithful` is said.
"""

from __future__ import annotations

from bakemesh.worker.engines.llama.header import Header

_ANYWAY = "runtime_config.allow_unfaithful=yes loads it all the same"


def wants_rank(header: Header, asked: str | None) -> bool:
    """Whether the model is to rerank: as LOAD says, else as the file says, else as it has a head for it."""
    if asked is not None:
        return asked == "rank"
    return header.pooling == "rank" or (header.pooling is None and header.head)


def refusal(header: Header, *, allow_unfaithful: bool) -> str | None:
    """Why the model may not rerank, or None."""
    name = header.architecture
    if not header.head:
        return f"{name}: no classification head (no tensor cls.output.weight): its scores would mean nothing"
    if allow_unfaithful:
        return None
    if name.startswith("qwen3"):
        return (
            f"{name}: rerankers of the Qwen3 kind are asked by a template that is not built here; {_ANYWAY}"
        )
    if header.rerank_template or header.causal:
        return f"{name}: this reranker is asked by a template, not by a plain pair; {_ANYWAY}"
    if header.segments > 1:
        return (
            f"{name}: trained with {header.segments} segment types, of which llama.cpp uses the first alone; "
            f"scores and their order would differ; {_ANYWAY}"
        )
    if header.labels > 1:
        return f"{name}: {header.labels} labels, where a score has one; {_ANYWAY}"
    return None
