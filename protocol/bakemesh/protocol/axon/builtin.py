"""The synapses that every gateway of a mesh with models serves. Source: protocol/axon-v1.md, section 10."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

from bakemesh.protocol.axon.streaming import StreamingSynapse
from bakemesh.protocol.axon.synapse import Synapse
from bakemesh.protocol.axon.tensor import Tensor

MOST_TEXTS = 2048
LONGEST_TEXT = 1 << 20
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Texts = Annotated[list[Text], Field(max_length=MOST_TEXTS, fail_fast=True)]


class TextOutput(BaseModel):
    """What TextPrompt answers."""

    completion: str


class EmbeddingOutput(BaseModel):
    """What Embedding answers: float32, shape (texts, dims)."""

    embeddings: Tensor


class RerankOutput(BaseModel):
    """What Rerank answers: a score a document, in their order."""

    scores: list[float]


class TextPrompt(StreamingSynapse):
    """A text that goes on from `prompt`; with `stream` part by part."""

    Output: ClassVar = TextOutput
    required_hash_fields: ClassVar[tuple[str, ...]] = ("prompt", "max_tokens", "temperature", "stream")

    prompt: Text = ""
    max_tokens: Annotated[int, Field(ge=1, le=1 << 20)] = 128
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    stream: bool = False
    completion: str | None = None


class Embedding(Synapse):
    """A vector a text."""

    Output: ClassVar = EmbeddingOutput
    required_hash_fields: ClassVar[tuple[str, ...]] = ("texts",)

    texts: Texts = Field(default_factory=list)
    embeddings: Tensor | None = None


class Rerank(Synapse):
    """How well each document fits the query."""

    Output: ClassVar = RerankOutput
    required_hash_fields: ClassVar[tuple[str, ...]] = ("query", "documents")

    query: Text = ""
    documents: Texts = Field(default_factory=list)
    scores: list[float] | None = None


BUILTIN: tuple[type[Synapse], ...] = (TextPrompt, Embedding, Rerank)
