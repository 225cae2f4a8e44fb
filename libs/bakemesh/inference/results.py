"""What calls give, and what they used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Usage:
    """Counts that calls add to. `prompt`: tokens read, special ones included; `generated`: tokens made, the
    end token not counted; `requests`: messages that got a result; `nodes`: how many of them, by NodeID.
    """

    prompt: int = 0
    generated: int = 0
    requests: int = 0
    nodes: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Tokens read and made."""
        return self.prompt + self.generated

    def add(self, node_id: str, prompt: int, generated: int = 0) -> None:
        """One more request."""
        self.nodes[node_id] += 1
        self.prompt += prompt
        self.generated += generated
        self.requests += 1


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a stream: whole characters. `index` counts from 0 without a gap."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A generation, ended. `finish_reason`: stop, length, grammar_complete, cancelled; `n_prompt` and
    `n_generated` are tokens read and made; `node_id` made it.
    """

    text: str
    finish_reason: str
    n_prompt: int
    n_generated: int
    node_id: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model on a node. `kind`: embed, rerank, generate; `dims`, `context`: numbers a row, tokens at most;
    `state`: ready, loaded, quarantined; `entries`: all that the node tells of it.
    """

    node_id: str
    alias: str
    kind: str
    state: str
    digest: str
    dims: int
    context: int
    entries: Mapping[str, Any]

    @classmethod
    def of(cls, node_id: str, entries: Mapping[str, Any]) -> ModelInfo:
        """Out of a map of a ModelList; what a newer node leaves out or adds does no harm."""

        def number(key: str) -> int:
            value = entries.get(key)
            return value if type(value) is int else 0

        alias, kind, state, digest = (
            str(entries.get(key, "")) for key in ("alias", "kind", "state", "digest")
        )
        return cls(node_id, alias, kind, state, digest, number("dims"), number("context"), dict(entries))


@dataclass(frozen=True, slots=True)
class Health:
    """A node's health, from stamps. `state`: ok, degraded, down, draining; `lanes` carry the age of their
    stamps in ms; `bytes_in_flight`: of all requests that are not answered yet.
    """

    node_id: str
    state: str
    queued: int
    bytes_in_flight: int
    lanes: tuple[Mapping[str, Any], ...]
    models: tuple[Mapping[str, Any], ...]
    problem: str | None


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """An ingest goes on: `done` of `total` bytes in `stage` (hash, copy, read, convert)."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Ingested:
    """A model is in a node's cache, under its alias. `manifest`: what is known of it."""

    node_id: str
    alias: str
    digest: str
    manifest: Mapping[str, Any]
