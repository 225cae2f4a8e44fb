"""The mesh as routes see it: embeddings, scores and texts by kind of model, within a request's own time.

    mesh = Mesh(inference, Models(chat="small"))
    await mesh.embed(["one"], None, Asking(deadline))        # None: the model for that kind

Guarantees: every call ends at its deadline at the latest, with one of the client's errors or the bus's; a
cancelled call, or a closed stream, cancels its request on its node. Which model: the one the settings name,
else the first (by alias) of that kind that the mesh lists; the list is at most LISTED_S old, asked for by one
call at a time, and thrown away where a model is not there any more. Left out: what is told outside
(`failures`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from numpy import float32
from numpy.typing import NDArray

from bakemesh.inference import Inference, ModelInfo, ModelUnknown, Text, Token, Usage
from bakemesh.inference.asking import Ids, Items, Turn
from bakemesh.inference.errors import refused
from bakemesh.inference.options import CallOptions, GenerateOptions
from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.inference.requests import HIGHEST_PRIORITY, LOWEST_PRIORITY

log = logging.getLogger(__name__)

LISTED_S = 5.0
PATIENCE_S = 1.0  # of the inference client: who is declined by all nodes for so long comes again by itself
ASK_S = 3.0  # for the list of models
QUARANTINED = "quarantined"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


class Kind(StrEnum):
    """What a model does."""

    EMBED = "embed"
    RERANK = "rerank"
    GENERATE = "generate"


@dataclass(frozen=True, slots=True)
class Models:
    """The aliases that settings name for each kind; None: the first that the mesh lists."""

    embed: str | None = None
    rerank: str | None = None
    chat: str | None = None

    def of(self, kind: Kind) -> str | None:
        """For this kind."""
        return {Kind.EMBED: self.embed, Kind.RERANK: self.rerank, Kind.GENERATE: self.chat}[kind]


@dataclass(frozen=True, slots=True)
class Asking:
    """How a request is asked, and what it used. `deadline`: by the loop's clock; `traceparent`: of who asked
    the gateway; `usage`: what was read and made for it is added.
    """

    deadline: float
    priority: int = 0
    traceparent: str | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Embedded:
    """`vectors`: (items, dims)."""

    vectors: NDArray[float32]
    model: str


@dataclass(frozen=True, slots=True)
class Scored:
    """`scores`: raw logits in the documents' order; higher is nearer."""

    scores: NDArray[float32]
    model: str


def clamped(priority: float) -> int:
    """A priority as the mesh takes it: a whole number, -100 to 100; NaN is 0."""
    if priority != priority:
        return 0
    return int(min(max(priority, LOWEST_PRIORITY), HIGHEST_PRIORITY))


def traceparent_of(text: str | None) -> str | None:
    """A header `traceparent` (W3C Trace Context) that may go on to the mesh; None: it is none."""
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None


def first_of(models: Iterable[ModelInfo], kind: Kind) -> str | None:
    """The alias that stands for a kind where nobody named one: one that can be used before one that is in
    quarantine on every node, then by alias.
    """
    usable: dict[str, bool] = {}
    for model in models:
        if model.kind == kind:
            usable[model.alias] = usable.get(model.alias, False) or model.state != QUARANTINED
    return min(usable, key=lambda alias: (not usable[alias], alias), default=None)


class Mesh:
    """One client of inference, and the choice of models."""

    def __init__(self, inference: Inference, models: Models | None = None) -> None:
        self._inference, self._named = inference, models or Models()
        self._listed: tuple[ModelInfo, ...] = ()
        self._listed_at = float("-inf")
        self._listing: asyncio.Task[tuple[ModelInfo, ...]] | None = None

    def problem(self) -> str | None:
        """Why the mesh cannot be asked now; None: it can."""
        if not self._inference.bus.connected:
            return "the bus is not connected"
        if not any(node.takes_work for node in self._inference.nodes):
            return "no synapse module takes work"
        return None

    # -- models

    async def models(self, deadline: float) -> tuple[ModelInfo, ...]:
        """The models of all nodes; one on two nodes is there twice. Raises NoNode, DeadlineExceeded."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._listed_at < LISTED_S:
            return self._listed
        if self._listing is None:
            self._listing = loop.create_task(self._list())
            self._listing.add_done_callback(self._told)
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(self._listing)
        except TimeoutError:
            raise refused(Code.DEADLINE_EXCEEDED, "the nodes did not tell their models in time") from None

    async def model(self, kind: Kind, deadline: float) -> str:
        """The alias that stands for this kind. Raises ModelUnknown, and what `models` does."""
        if named := self._named.of(kind):
            return named
        found = first_of(await self.models(deadline), kind)
        if found is None:
            self._forget()
            raise refused(Code.MODEL_UNKNOWN, f"the mesh has no model for {kind}; ingest one")
        return found

    async def _list(self) -> tuple[ModelInfo, ...]:
        found = tuple(await self._inference.models(deadline_s=ASK_S))
        self._listed, self._listed_at = found, asyncio.get_running_loop().time()
        return found

    def _told(self, task: asyncio.Task[tuple[ModelInfo, ...]]) -> None:
        self._listing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("the nodes did not tell their models: %s", error)

    def _forget(self) -> None:
        self._listed_at = float("-inf")

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Where a model turns out not to be there, the list is asked for anew."""
        try:
            yield
        except ModelUnknown:
            self._forget()
            raise

    # -- work

    async def embed(
        self, items: Items, model: str | None, asking: Asking, *, truncate: bool = False
    ) -> Embedded:
        """Vectors of length 1. Raises InferenceErrors, BusErrors."""
        alias = model or await self.model(Kind.EMBED, asking.deadline)
        with self._noticing():
            options = _options(asking)
            vectors = await self._inference.embed(items, model=alias, truncate=truncate, **options)
        return Embedded(vectors, alias)

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        model: str | None,
        asking: Asking,
        *,
        truncate: bool = False,
    ) -> Scored:
        """A score a document. Raises InferenceErrors, BusErrors."""
        alias = model or await self.model(Kind.RERANK, asking.deadline)
        with self._noticing():
            options = _options(asking)
            scores = await self._inference.rerank(query, documents, alias, truncate=truncate, **options)
        return Scored(scores, alias)

    async def generate(
        self,
        given: str | Ids | Sequence[Turn],
        model: str | None,
        asking: Asking,
        wanted: GenerateOptions,
        *,
        chat: bool = False,
    ) -> tuple[Text, str]:
        """The text, and the alias that made it. `given`: a prompt, its ids or, with `chat`, turns. Raises
        InferenceErrors, BusErrors.
        """
        alias = model or await self.model(Kind.GENERATE, asking.deadline)
        options: Any = {**wanted, **_options(asking)}
        ask: Any = self._inference.chat if chat else self._inference.generate
        with self._noticing():
            text: Text = await ask(given, alias, **options)
        return text, alias

    async def stream(
        self,
        given: str | Ids | Sequence[Turn],
        model: str | None,
        asking: Asking,
        wanted: GenerateOptions,
        *,
        chat: bool = False,
    ) -> tuple[AsyncGenerator[Token | Text, None], str]:
        """As `generate`, token by token and the Text at last; to be closed (`contextlib.aclosing`)."""
        alias = model or await self.model(Kind.GENERATE, asking.deadline)
        options: Any = {**wanted, **_options(asking)}
        ask: Any = self._inference.chat_stream if chat else self._inference.stream
        return ask(given, alias, **options), alias


def _options(asking: Asking) -> CallOptions:
    """Raises DeadlineExceeded where the time is over."""
    left = asking.deadline - asyncio.get_running_loop().time()
    if left <= 0:
        raise refused(Code.DEADLINE_EXCEEDED, "the time of the request was over before it was asked")
    return {
        "deadline_s": left,
        "priority": asking.priority,
        "traceparent": asking.traceparent,
        "usage": asking.usage,
    }
