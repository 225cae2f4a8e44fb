"""The client for scripts without asyncio: the same names, each call blocks.

    with Inference("nats://…", name="script") as inference:
        vectors = inference.embed(["one", "two"], model="minilm")
        for part in inference.stream("Once", model="small"): ...

One thread with an event loop of its own runs the asynchronous client. Guarantees: an exception is raised here
as it is; Ctrl-C interrupts any call at once and cancels its request, and the client stays usable; nothing is
left running after the `with` block. Calls may come from several threads. Left out: doing several things at
once in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from bakemesh.bus.threaded import LoopThread, Stream, made
from bakemesh.inference import session
from bakemesh.inference.asking import Ids, Items, Turn
from bakemesh.inference.care import OnProgress
from bakemesh.inference.errors import Closed
from bakemesh.inference.gathering import Array
from bakemesh.inference.nodes import Node
from bakemesh.inference.options import CallOptions, GenerateOptions, Pooling
from bakemesh.inference.results import Health, Ingested, ModelInfo, Text, Token, Usage
from bakemesh.inference.session import CARE_S, INGEST_S, PROBE_S


class Inference:
    """A client, blocking: connects when it is made; a context manager that closes it. Each call is that of
    `bakemesh.inference.Inference`.
    """

    def __init__(
        self, nats: str | Sequence[str] = "nats://127.0.0.1:4222", name: str = "inference", **settings: Any
    ) -> None:
        """`settings`: those of `Inference.connect`. Raises BusUnreachable, AccessDenied, BadCredentials,
        NameRefused.
        """
        self._loop = LoopThread("bakemesh inference", lambda: Closed("the client was closed"))
        try:
            self._session = self._loop.call(
                _opened(lambda: session.Inference.connect(nats, name, **settings))
            )
        except BaseException:
            self._loop.stop()
            raise

    @property
    def usage(self) -> Usage:
        """Of all calls."""
        return self._session.usage

    @property
    def nodes(self) -> list[Node]:
        """The nodes with a synapse module that are heard of, as their last Status told."""
        return self._session.nodes

    def embed(
        self,
        items: Items,
        *,
        model: str,
        pooling: Pooling | None = None,
        normalize: bool = True,
        truncate: bool = False,
        **options: Unpack[CallOptions],
    ) -> Array:
        """Vectors: float32, shape (items, dims)."""
        return self._loop.call(
            self._session.embed(
                items, model=model, pooling=pooling, normalize=normalize, truncate=truncate, **options
            )
        )

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        model: str,
        *,
        truncate: bool = False,
        **options: Unpack[CallOptions],
    ) -> Array:
        """Scores: float32, shape (documents,)."""
        return self._loop.call(self._session.rerank(query, documents, model, truncate=truncate, **options))

    def generate(self, prompt: str | Ids, model: str, **options: Unpack[GenerateOptions]) -> Text:
        """The text that goes on from `prompt`."""
        return self._loop.call(self._session.generate(prompt, model, **options))

    def stream(
        self, prompt: str | Ids, model: str, **options: Unpack[GenerateOptions]
    ) -> Stream[Token | Text]:
        """As `generate`, token by token, and the Text at last; `close` cancels."""
        begin = made(lambda: self._session.stream(prompt, model, **options))
        return Stream(self._loop, self._loop.call(begin))

    def chat(self, messages: Sequence[Turn], model: str, **options: Unpack[GenerateOptions]) -> Text:
        """The next turn of a chat."""
        return self._loop.call(self._session.chat(messages, model, **options))

    def chat_stream(
        self, messages: Sequence[Turn], model: str, **options: Unpack[GenerateOptions]
    ) -> Stream[Token | Text]:
        """As `chat`, token by token, and the Text at last; `close` cancels."""
        begin = made(lambda: self._session.chat_stream(messages, model, **options))
        return Stream(self._loop, self._loop.call(begin))

    def models(self, node: str | None = None, *, deadline_s: float = CARE_S) -> list[ModelInfo]:
        """The models of one node, or of all."""
        return self._loop.call(self._session.models(node, deadline_s=deadline_s))

    def health(self, node: str | None = None, *, deadline_s: float = CARE_S) -> list[Health]:
        """How one node is, or all of them."""
        return self._loop.call(self._session.health(node, deadline_s=deadline_s))

    def probe(
        self,
        model: str,
        *,
        node: str | None = None,
        config: Mapping[str, str] | None = None,
        deadline_s: float = PROBE_S,
    ) -> str:
        """Tries a quarantined model now: `ok` or `quarantined`."""
        return self._loop.call(self._session.probe(model, node=node, config=config, deadline_s=deadline_s))

    def ingest(
        self,
        path: str | PurePath,
        alias: str,
        *,
        node: str | None = None,
        weights: Literal["asis", "fastest"] = "asis",
        config: Mapping[str, str] | None = None,
        progress: OnProgress | None = None,
        deadline_s: float = INGEST_S,
    ) -> Ingested:
        """Takes a file of the node's own disk into its cache; `progress` is called in the client's thread."""
        return self._loop.call(
            self._session.ingest(
                path,
                alias,
                node=node,
                weights=weights,
                config=config,
                progress=progress,
                deadline_s=deadline_s,
            )
        )

    def close(self) -> None:
        """Closes the connection and ends the thread. Idempotent."""
        try:
            self._loop.call(self._session.close())
        except Closed:
            return
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _opened(make: Callable[[], session.Inference]) -> session.Inference:
    return await make().open()
