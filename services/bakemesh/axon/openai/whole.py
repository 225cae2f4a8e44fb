"""Answers that come at once. Each function: a body and how it is asked → the answer's bytes.

Raises the mesh's errors as they are, and Refused. Left out: HTTP, keys, clients that go away.
"""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Coroutine
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from bakemesh.axon.mesh import Asking, Kind, Mesh
from bakemesh.axon.openai import answers
from bakemesh.axon.openai.asking import (
    alias_of,
    documents_of,
    items_of,
    prompts_of,
    turns_of,
    wanted_of,
)
from bakemesh.axon.openai.refusals import Refused, no_model
from bakemesh.axon.openai.requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RerankRequest,
)
from bakemesh.inference import Text

ROWS_AT_ONCE = 64  # made into text before others have their turn in the loop


async def embeddings(mesh: Mesh, request: EmbeddingRequest, asking: Asking) -> bytes:
    """EmbeddingList."""
    model = alias_of(request.model) or await mesh.model(Kind.EMBED, asking.deadline)
    if request.dimensions is not None:
        await _check_dimensions(mesh, model, request.dimensions, asking)
    found = await mesh.embed(items_of(request), model, asking)
    rows = await _rows(found.vectors, numbers=request.encoding_format != "base64")
    frame = answers.EmbeddingList(
        data=[],
        model=found.model,
        usage=_read(asking),
    )
    before, after = answers.as_json(frame).split(b'"data":[]', 1)
    return b"".join((before, b'"data":[', b",".join(rows), b"]", after))


async def _check_dimensions(mesh: Mesh, model: str, wanted: int, asking: Asking) -> None:
    there = {each.dims for each in await mesh.models(asking.deadline) if each.alias == model}
    if there and wanted not in there:
        told = f"dimensions: {model!r} makes vectors of {max(there)} numbers, which are not shortened"
        raise Refused(400, f"{told}; leave it out", code="unsupported_parameter", param="dimensions")


async def _rows(vectors: NDArray[np.float32], *, numbers: bool) -> list[bytes]:
    """Each row as JSON; long lists are made in pieces, so that nobody waits for one."""
    rows: list[bytes] = []
    for index, vector in enumerate(vectors):
        if numbers:
            said = to_json(vector.tolist())
        else:
            said = b'"%s"' % base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes())
        rows.append(b'{"object":"embedding","index":%d,"embedding":%s}' % (index, said))
        if index % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
            await asyncio.sleep(0)
    return rows


async def completion(mesh: Mesh, request: CompletionRequest, asking: Asking) -> bytes:
    """Completion: a choice for each prompt."""
    model = alias_of(request.model) or await mesh.model(Kind.GENERATE, asking.deadline)
    wanted = wanted_of(request)
    made = await _all([mesh.generate(each, model, asking, wanted) for each in prompts_of(request)])
    texts = [text for text, _ in made]
    answer = answers.Completion(
        id=answers.new_id("cmpl"),
        created=answers.now(),
        model=model,
        choices=[
            answers.CompletionChoice(index=index, text=text.text, finish_reason=finished(text))
            for index, text in enumerate(texts)
        ],
        usage=answers.Usage.of(sum(text.n_prompt for text in texts), sum(text.n_generated for text in texts)),
    )
    return answers.as_json(answer)


async def _all(works: list[Coroutine[Any, Any, tuple[Text, str]]]) -> list[tuple[Text, str]]:
    """All of them; the first that fails ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def chat(mesh: Mesh, request: ChatRequest, asking: Asking) -> bytes:
    """Chat."""
    text, model = await mesh.generate(
        turns_of(request), alias_of(request.model), asking, wanted_of(request), chat=True
    )
    message = answers.ChatMessage(content=text.text)
    answer = answers.Chat(
        id=answers.new_id("chatcmpl"),
        created=answers.now(),
        model=model,
        choices=[answers.ChatChoice(message=message, finish_reason=finished(text))],
        usage=answers.Usage.of(text.n_prompt, text.n_generated),
    )
    return answers.as_json(answer)


async def rerank(mesh: Mesh, request: RerankRequest, asking: Asking) -> bytes:
    """Ranking: the best first, equal ones as they came."""
    documents = documents_of(request)
    found = await mesh.rerank(request.query, documents, alias_of(request.model), asking, truncate=True)
    order = sorted(range(len(documents)), key=lambda index: -float(found.scores[index]))
    results = [
        answers.Ranked(
            index=index,
            relevance_score=relevance(float(found.scores[index])),
            document=answers.ScoredText(text=documents[index]) if request.return_documents else None,
        )
        for index in order[: request.top_n]
    ]
    answer = answers.Ranking(
        id=answers.new_id("rerank"),
        model=found.model,
        results=results,
        usage=_read(asking),
    )
    return answers.as_json(answer)


def _read(asking: Asking) -> answers.ReadUsage:
    return answers.ReadUsage(prompt_tokens=asking.usage.prompt, total_tokens=asking.usage.prompt)


def relevance(logit: float) -> float:
    """A raw score as a number from 0 to 1: the logistic function."""
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else 1 - 1 / (1 + math.exp(logit))


async def models(mesh: Mesh, deadline: float) -> list[answers.Model]:
    """Each alias once, by name."""
    found: dict[str, answers.Model] = {}
    for each in await mesh.models(deadline):
        told = answers.Model(id=each.alias, kind=each.kind, context_length=each.context)
        found.setdefault(each.alias, told)
    return sorted(found.values(), key=lambda model: model.id)


async def model(mesh: Mesh, wanted: str, deadline: float) -> answers.Model:
    """One of them. Raises Refused (404)."""
    for each in await models(mesh, deadline):
        if each.id == wanted:
            return each
    raise no_model(wanted)


def finished(text: Text) -> answers.FinishReason:
    """Why it ended, in OpenAI's words; one that is not known did not end by itself."""
    return answers.FINISHED.get(text.finish_reason, "length")
