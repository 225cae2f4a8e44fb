"""The bodies that clients send. Fields that are not here are ignored; those of OpenAI's that would change the
answer and that the mesh does not have are here with the one value that changes nothing. Every list ends at
its first wrong value: of a million of them each would be kept.

Source: OpenAI's API reference (embeddings, completions, chat); Cohere's and Jina's (rerank).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from bakemesh.protocol.inference.requests import MAX_STOPS, STOP_CHARACTERS

MOST_INPUTS = 2048
MOST_PROMPTS = 64
MOST_TURNS = 4096
MOST_TOKENS = 1 << 20
COMPLETION_TOKENS = 16
CHAT_TOKENS = 1024

ModelName = Annotated[str, Field(min_length=1, max_length=200)]
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
Ids = Annotated[list[TokenId], Field(min_length=1, max_length=MOST_TOKENS, fail_fast=True)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=STOP_CHARACTERS)]
Stops = Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS, fail_fast=True)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
Zero = Annotated[float, Field(ge=0, le=0)]
Empty = Annotated[dict[str, Any], Field(max_length=0)]
EmptyList = Annotated[list[Any], Field(max_length=0)]


class Body(BaseModel):
    """Base of all. `FIXED`: fields that the mesh does not have; their one value says so."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())

    FIXED: ClassVar[frozenset[str]] = frozenset()


class EmbeddingRequest(Body):
    """POST /v1/embeddings. Token ids are the model's own, special ones included."""

    FIXED: ClassVar = frozenset({"dimensions"})

    model: ModelName
    input: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True)]
    )
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="must be the model's own: vectors are not shortened"
    )


class StreamOptions(BaseModel):
    """What a stream tells besides."""

    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool | None = None


class Sampled(Body):
    """What both ways to make text have in common. Without `temperature`: 1, as OpenAI says; 0: greedy."""

    FIXED: ClassVar = frozenset({"n", "logit_bias", "presence_penalty", "frequency_penalty"})

    model: ModelName
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    stop: Stops | None = None
    n: Literal[1] | None = 1
    presence_penalty: Zero | None = None
    frequency_penalty: Zero | None = None
    logit_bias: Empty | None = None


class CompletionRequest(Sampled):
    """POST /v1/completions. A stream has one prompt."""

    FIXED: ClassVar = Sampled.FIXED | {"best_of", "echo", "suffix", "logprobs"}

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True)]
    )
    max_tokens: Tokens | None = COMPLETION_TOKENS
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None
    logprobs: None = None


class TextPart(BaseModel):
    """A part of a turn; text is the only kind that the mesh reads."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: Literal["text"]
    text: str


class Turn(BaseModel):
    """One turn. `developer` is read as `system`; a `name` is not passed on."""

    model_config = ConfigDict(strict=True, extra="ignore")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1, max_length=MOST_TURNS, fail_fast=True)]
    tool_calls: EmptyList | None = None
    function_call: None = None


class PlainText(BaseModel):
    """No constraint."""

    type: Literal["text"]


class JsonObject(BaseModel):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(BaseModel):
    """`strict` or not: the text follows the schema."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=(), populate_by_name=True)

    name: Annotated[str, Field(min_length=1, max_length=64)]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class JsonSchema(BaseModel):
    """JSON that fits the schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[PlainText | JsonObject | JsonSchema, Field(discriminator="type")]


class ChatRequest(Sampled):
    """POST /v1/chat/completions. Without a maximum: 1024 tokens."""

    FIXED: ClassVar = Sampled.FIXED | {
        "tools", "tool_choice", "functions", "function_call", "logprobs", "top_logprobs", "modalities",
        "audio", "web_search_options",
    }  # fmt: skip

    messages: Annotated[list[Turn], Field(min_length=1, max_length=MOST_TURNS, fail_fast=True)]
    max_completion_tokens: Tokens | None = None
    max_tokens: Tokens | None = None
    response_format: ResponseFormat | None = None
    tools: EmptyList | None = None
    tool_choice: Literal["none", "auto"] | None = None
    functions: EmptyList | None = None
    function_call: Literal["none", "auto"] | None = None
    logprobs: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None
    modalities: Annotated[list[Literal["text"]], Field(max_length=1, fail_fast=True)] | None = None
    audio: None = None
    web_search_options: None = None


class TextDocument(BaseModel):
    """A document as an object."""

    model_config = ConfigDict(strict=True, extra="ignore")

    text: str


class RerankRequest(Body):
    """POST /v1/rerank. A document that does not fit beside the query is cut."""

    model: ModelName | None = None
    query: str
    documents: Annotated[
        list[str | TextDocument], Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True)
    ]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool | None = False
