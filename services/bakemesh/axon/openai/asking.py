"""A body as what the mesh is asked. Pure."""

from __future__ import annotations

import json

import numpy as np

from bakemesh.axon.openai.refusals import no_model
from bakemesh.axon.openai.requests import (
    CHAT_TOKENS,
    COMPLETION_TOKENS,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    JsonObject,
    JsonSchema,
    RerankRequest,
    Sampled,
)
from bakemesh.inference.asking import Ids, Items
from bakemesh.inference.options import GenerateOptions
from bakemesh.protocol import names
from bakemesh.protocol.subjects import NO_KEY

TEMPERATURE = 1.0
ANY_OBJECT = '{"type": "object"}'


def alias_of(model: str | None) -> str | None:
    """The alias that a body names; None: it names none. Raises Refused (404) for what can be no alias."""
    if model is None or (model != NO_KEY and names.is_valid("alias", model)):
        return model
    raise no_model(model)


def items_of(request: EmbeddingRequest) -> Items:
    """Texts, or rows of token ids."""
    given = request.input
    if isinstance(given, list) and isinstance(given[0], int):
        return [np.asarray(given, np.int64)]
    return given


def prompts_of(request: CompletionRequest) -> list[str | Ids]:
    """One prompt or several."""
    given = request.prompt
    if isinstance(given, str) or isinstance(given[0], int):
        return [given]
    return list(given)


def turns_of(request: ChatRequest) -> list[dict[str, str]]:
    """Turns as the model's template reads them: parts of a text are put together."""
    return [
        {
            "role": "system" if turn.role == "developer" else turn.role,
            "content": turn.content
            if isinstance(turn.content, str)
            else "".join(part.text for part in turn.content),
        }
        for turn in request.messages
    ]


def documents_of(request: RerankRequest) -> list[str]:
    """Their texts."""
    return [each if isinstance(each, str) else each.text for each in request.documents]


def wanted_of(request: CompletionRequest | ChatRequest) -> GenerateOptions:
    """How the text is made."""
    if isinstance(request, CompletionRequest):
        return {**_sampling(request), "max_tokens": request.max_tokens or COMPLETION_TOKENS}
    most = request.max_completion_tokens or request.max_tokens or CHAT_TOKENS
    return {**_sampling(request), "max_tokens": most, "json_schema": _schema(request)}


def _sampling(request: Sampled) -> GenerateOptions:
    stop = [request.stop] if isinstance(request.stop, str) else request.stop
    return {
        "temperature": TEMPERATURE if request.temperature is None else request.temperature,
        "top_p": request.top_p,
        "seed": None if request.seed is None else request.seed % (1 << 32),
        "stop": stop or None,
    }


def _schema(request: ChatRequest) -> str | None:
    wanted = request.response_format
    if isinstance(wanted, JsonObject):
        return ANY_OBJECT
    return json.dumps(wanted.json_schema.schema_) if isinstance(wanted, JsonSchema) else None
