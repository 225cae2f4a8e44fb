"""What an engine is: the seam between the worker's conversation and whatever computes.

The worker calls one method at a time, from one thread. Before it calls, it has checked what needs no engine:
the artifact's digest, the keys and values of the configuration (`worker.config`), that the counts add up to
the ids, that no item is empty, that there are at most 256, and that every id is within the vocabulary that
`info` tells. The engine checks what only it knows: lengths against its contexts, pooling, grammars. It says
no by EngineError; every other exception is answered `inference_failed`, and the worker lives on.

Token ids arrive as a memoryview of format "i" (native int32), items one after the other. Vectors and scores
leave as a memoryview of float32 in native order, which on every supported platform is the wire's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Emit = Callable[[str], None]
Cancelled = Callable[[], bool]


class EngineError(Exception):
    """Raised when an engine refuses or fails. `code` is one of the wire's (protocol.worker.headers.CODES)."""

    def __init__(self, code: str, msg: str) -> None:
        super().__init__(msg)
        self.code, self.msg = code, msg


class GenerationCancelled(EngineError):
    """Raised by an engine that was cancelled where there is no text to give: ERR `cancelled`."""

    def __init__(self, msg: str = "cancelled") -> None:
        super().__init__("cancelled", msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What MODEL answers. `n_vocab`: ids are 0 … n_vocab - 1. `pooling`: what the model was made for."""

    architecture: str
    dims: int
    n_vocab: int
    n_ctx_train: int
    pooling: str
    rank_head: bool
    chat_template: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to generate. All None: greedy, free. GENERATE gives max_tokens and grammar alone."""

    max_tokens: int
    grammar: str | None = None
    json_schema: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A generation's end. `n_gen` does not count the end token; `finish_reason`: headers.FINISH_REASONS."""

    text: str
    n_prompt: int
    n_gen: int
    finish_reason: str


class LoadedModel(Protocol):
    """A loaded model: the engine's own value, of which the worker reads the width of its vectors alone."""

    @property
    def dims(self) -> int:
        """Numbers in a vector."""


class Engine(Protocol):
    """One way to compute. `types`: the protocol's added types that it can. `formats`: what LOAD may name.

    `switches`: keys of runtime_config that only this engine has, beside those of `worker.config`.
    """

    name: str
    version: str
    build_flags: dict[str, Any]
    types: tuple[str, ...]
    formats: tuple[str, ...]
    switches: tuple[str, ...]

    def load(self, path_fd: int, path: str, format: str, config: Mapping[str, str]) -> Any:  # noqa: A002
        """Loads a model, gives a LoadedModel. Raises EngineError: artifact_invalid, oom, config_invalid.

        `path_fd` is the open file whose digest was proven: load `/proc/self/fd/<path_fd>` where there is
        one, so that the file cannot be exchanged in between; it is closed after this returns. `path` is for
        messages. `config` was checked; `worker.config.RuntimeConfig.of(config)` reads it.
        """

    def embed(
        self, model: Any, pooling: str, normalize: bool, counts: Sequence[int], ids: memoryview
    ) -> memoryview:
        """len(counts) × dims float32, rows in the order of the items."""

    def rerank(self, model: Any, query_n: int, counts: Sequence[int], ids: memoryview) -> memoryview:
        """One float32 a candidate: raw logits. `ids`: the query's, then the candidates', without specials."""

    def generate(
        self, model: Any, ids: memoryview, options: Options, emit: Emit | None, cancelled: Cancelled
    ) -> Generated:
        """Generates. `emit` takes each piece (whole characters); None: nobody wants them.

        `cancelled` is to be asked at least once a token, in prefill too; it costs a look at the socket (about
        1 µs). True: end at once with what there is, finish_reason "cancelled".
        """

    def info(self, model: Any) -> ModelFacts:
        """What the model is. Cheap: it is asked before every request."""

    def unload(self, model: Any) -> None:
        """Gives the model's memory back."""
