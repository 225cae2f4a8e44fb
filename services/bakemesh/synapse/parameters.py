"""A module's parameters: `<parameter>`s of its component, or flags, as one value. Pure.

    lanes="local" workers=2 model.chat="/models/chat.gguf" model.chat.ctx_size="4096"

Every problem is told at once, a name that is none with the nearest one that is. Left out: what only the
files can tell (`models`), and what only an engine can (a runtime key's value).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakemesh.protocol.builder.spec.problems import suggestion
from bakemesh.protocol.numerals import whole
from bakemesh.protocol.subjects import NO_KEY
from bakemesh.synapse.models.aliases import ALIAS
from bakemesh.telemetry import KINDS

Given = int | float | str
LANES, WEIGHTS, ENGINES = ("local", "bus", "both"), ("asis", "fastest"), ("llama", "fake")
MODEL = "model."
_RUNTIME_KEY = re.compile(r"[a-z][a-z0-9_]{0,63}")


class ParametersRefused(ValueError):
    """Raised when parameters cannot be taken; `problems` has a line for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenModel:
    """A model to have: the file (or folder) and the runtime keys of its alias."""

    alias: str
    path: Path
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """See the page on inference. `workers` None: one a core. `memory_mib` None: what the machine has."""

    lanes: str = "local"
    workers: int | None = None
    weights: str = "asis"
    engine: str = "llama"
    memory_mib: int | None = None
    max_queue_ms: int = 10_000
    telemetry: str = "off"
    models: tuple[GivenModel, ...] = ()

    @property
    def own_lanes(self) -> bool:
        """Whether it runs workers itself."""
        return self.lanes in ("local", "both")

    @property
    def bus_lanes(self) -> bool:
        """Whether it uses lanes that others offer."""
        return self.lanes in ("bus", "both")


def read(given: Mapping[str, Given]) -> Parameters:
    """The value. Raises ParametersRefused."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    paths: dict[str, Path] = {}
    keys: dict[str, dict[str, str]] = {}
    for name, value in given.items():
        if name.startswith(MODEL):
            if problem := _model(name, value, paths, keys):
                problems.append(problem)
            continue
        row = _ROWS.get(name)
        if row is None:
            known = [*_ROWS, f"{MODEL}<alias>"]
            near = suggestion(name, _ROWS) or f"; there are {', '.join(known)}"
            problems.append(f"parameter {name!r} is none of a synapse module{near}")
            continue
        try:
            values[name.replace("-", "_")] = row(value)
        except ValueError as error:
            problems.append(f"parameter {name!r} {error}, not {value!r}")
    for alias in keys.keys() - paths.keys():
        near = suggestion(alias, paths)
        problems.append(f"parameter '{MODEL}{alias}.…' is about a model that has no '{MODEL}{alias}'{near}")
    if problems:
        raise ParametersRefused(problems)
    models = tuple(
        GivenModel(alias=alias, path=path, config=keys.get(alias, {})) for alias, path in paths.items()
    )
    return Parameters(models=models, **values)


def _model(name: str, value: Given, paths: dict[str, Path], keys: dict[str, dict[str, str]]) -> str | None:
    """Takes one parameter of a model; what is wrong with it, if anything."""
    alias, dot, key = name.removeprefix(MODEL).partition(".")
    if not is_alias(alias):
        return f"parameter {name!r}: an alias is 1 to 64 of A-Z, a-z, 0-9, _ and -, but not '-' alone"
    if dot:
        if not _RUNTIME_KEY.fullmatch(key):
            return f"parameter {name!r}: {key!r} is no runtime key; one is, for instance, ctx_size"
        keys.setdefault(alias, {})[key] = str(value)
        return None
    if not isinstance(value, str) or not os.path.isabs(value):
        return f"parameter {name!r} must be the absolute path of a model's file or folder, not {value!r}"
    paths[alias] = Path(value)
    return None


def _one_of(*words: str) -> Callable[[Given], str]:
    def take(value: Given) -> str:
        if value not in words:
            near = suggestion(str(value), words)
            raise ValueError(f"must be one of {', '.join(words)}{near}")
        return str(value)

    return take


def _number(least: int, most: int) -> Callable[[Given], int]:
    def take(value: Given) -> int:
        number = whole(value) if isinstance(value, str) else value
        if not isinstance(number, int) or not least <= number <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return number

    return take


_ROWS: dict[str, Callable[[Given], Any]] = {
    "lanes": _one_of(*LANES),
    "workers": _number(1, 1024),
    "weights": _one_of(*WEIGHTS),
    "engine": _one_of(*ENGINES),
    "memory-mib": _number(64, 1 << 30),
    "max-queue-ms": _number(1, 3_600_000),
    "telemetry": _one_of(*KINDS),
}
NAMES = tuple(_ROWS)


def is_alias(text: str) -> bool:
    """Whether it can be a model's name on the bus."""
    return text != NO_KEY and ALIAS.fullmatch(text) is not None
