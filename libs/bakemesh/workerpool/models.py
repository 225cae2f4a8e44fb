"""What goes in and comes out: artifacts, keys of (model, config), results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bakemesh.protocol.worker import headers as h


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A model's file. `digest`: `sha256:<hex>`; the worker verifies it before it maps the file."""

    path: Path
    digest: str
    format: str = "gguf"


class ModelKey(str):
    """A (model, config): what is loaded, charged, quarantined. The pool's own stable name of it.

    A str of all three, because each request looks it up in two dozen tables: a str is hashed once, and
    compared without a call into Python. Equal where digest, format and config are.
    """

    __slots__ = ("config", "digest", "format", "id")
    digest: str
    format: str  # type: ignore[assignment]  # str has a method of this name, which nobody wants of a key
    config: tuple[tuple[str, str], ...]
    id: str  # 16 hex digits, the same over restarts of host and worker

    def __new__(cls, digest: str, format: str, config: tuple[tuple[str, str], ...] = ()) -> ModelKey:  # noqa: A002
        """Names it once."""
        said = json.dumps([digest, format, config])
        made = super().__new__(cls, said)
        made.digest, made.format, made.config = digest, format, config
        made.id = hashlib.sha256(said.encode()).hexdigest()[:16]
        return made

    def __repr__(self) -> str:
        return f"ModelKey(digest={self.digest!r}, format={self.format!r}, config={self.config!r})"


def key_of(artifact: Artifact, config: Mapping[str, str]) -> ModelKey:
    """The key; the order of `config` does not matter."""
    digest = artifact.digest.removeprefix("sha256:").lower() or str(artifact.path)
    return _key(digest, artifact.format, tuple(sorted(config.items())))


@lru_cache(maxsize=1024)
def _key(digest: str, kind: str, config: tuple[tuple[str, str], ...]) -> ModelKey:
    """The same object for the same key: what is looked up by it is found without comparing any field."""
    return ModelKey(digest, kind, config)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that can be asked. `cold_load_ms`: of its LOAD, 0 where it was loaded already."""

    key: ModelKey
    dims: int
    cold_load_ms: int


@dataclass(frozen=True, slots=True)
class Share:
    """One caller's part of an EMBED_BATCH: tokens of each item, and all ids, i32 LE, one after the other.

    `names`: the items' ids on the wire; without them they are numbered.
    """

    counts: Sequence[int]
    ids: bytes | memoryview
    names: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Vectors:
    """`n` rows of `dims` f32 LE, in the order of the items."""

    n: int
    dims: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Token:
    """One piece of a stream, `index` from 0."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A generation's end. `finish_reason`: stop, length, grammar_complete, cancelled."""

    text: str
    n_prompt: int
    n_gen: int
    finish_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """GENERATE_STREAM's fields; what is None is the worker's to choose."""

    grammar: str | None = None
    json_schema: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


Info = h.Model  # what MODEL_INFO tells, as it is on the wire
