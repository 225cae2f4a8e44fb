"""The bodies that clients get. Source: as `requests`."""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FinishReason = Literal["stop", "length"]
_ABSENT = {"exclude_if": lambda value: value is None}

# What the mesh says, in OpenAI's words. One that was taken back within the mesh was cut: `length`.
FINISHED: dict[str, FinishReason] = {
    "stop": "stop",
    "grammar_complete": "stop",
    "length": "length",
    "cancelled": "length",
}


class Answer(BaseModel):
    """Base of all."""

    model_config = ConfigDict(protected_namespaces=())


class ErrorDetail(Answer):
    """`param`: which field; `code`: a word for machines."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(Answer):
    """Every answer that is no success."""

    error: ErrorDetail


class ReadUsage(Answer):
    """Tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class Usage(ReadUsage):
    """Tokens that were read and made."""

    completion_tokens: int

    @classmethod
    def of(cls, prompt: int, made: int) -> Usage:
        """The sum is their total."""
        return cls(prompt_tokens=prompt, completion_tokens=made, total_tokens=prompt + made)


class EmbeddingRow(Answer):
    """`embedding`: numbers, or the base64 of float32, little-endian."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingList(Answer):
    """Rows in the order of the inputs."""

    object: Literal["list"] = "list"
    data: list[EmbeddingRow]
    model: str
    usage: ReadUsage


class CompletionChoice(Answer):
    """A text; in a stream, a piece of it."""

    index: int = 0
    text: str
    logprobs: None = None
    finish_reason: FinishReason | None


class Completion(Answer):
    """An answer of /v1/completions, and a chunk of its stream. `usage`: at the end."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Annotated[Usage | None, Field(**_ABSENT)] = None


class ChatMessage(Answer):
    """The next turn."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(Answer):
    """The one choice."""

    index: int = 0
    message: ChatMessage
    logprobs: None = None
    finish_reason: FinishReason


class Chat(Answer):
    """An answer of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class Delta(Answer):
    """What a chunk adds to the turn."""

    role: Annotated[Literal["assistant"] | None, Field(**_ABSENT)] = None
    content: Annotated[str | None, Field(**_ABSENT)] = None


class ChunkChoice(Answer):
    """Of the one choice."""

    index: int = 0
    delta: Delta
    logprobs: None = None
    finish_reason: FinishReason | None = None


class ChatChunk(Answer):
    """A piece of a chat's stream. `usage`: in the last chunk, whose `choices` are none."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Annotated[Usage | None, Field(**_ABSENT)] = None


class ScoredText(Answer):
    """A document as it was given."""

    text: str


class Ranked(Answer):
    """`index`: of the document in the request. `relevance_score`: 0 to 1."""

    index: int
    relevance_score: float
    document: Annotated[ScoredText | None, Field(**_ABSENT)] = None


class Ranking(Answer):
    """The best first."""

    id: str
    object: Literal["list"] = "list"
    model: str
    results: list[Ranked]
    usage: ReadUsage


class Model(Answer):
    """`created`: 0, the mesh does not keep it. `kind`: embed, rerank, generate; more than OpenAI tells."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "bakemesh"
    kind: str
    context_length: int


class ModelList(Answer):
    """Each alias once."""

    object: Literal["list"] = "list"
    data: list[Model]


def new_id(prefix: str) -> str:
    """An id that nobody else has: `chatcmpl-…`."""
    return f"{prefix}-{secrets.token_hex(12)}"


def now() -> int:
    """Seconds since the epoch."""
    return int(time.time())


def as_json(answer: Answer) -> bytes:
    """Its bytes."""
    return answer.__pydantic_serializer__.to_json(answer)


def fields(answer: Answer) -> dict[str, Any]:
    """As a map."""
    return answer.model_dump(mode="json")
