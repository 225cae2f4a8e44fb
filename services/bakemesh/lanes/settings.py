"""A lane host's settings, as one value, and how a component's parameters give them. Pure, but for what the
machine is asked: its cores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bakemesh import workerpool
from bakemesh.workerpool.settings import OUR_WORKER, runtime_dir

SERVICE: Final = "lanes"
ENGINES: Final = ("llama", "fake")  # as bakemesh.worker.engines.NAMES: no service imports another
MOST_WORKERS: Final = 1024
PARAMETERS: Final = ("workers", "engine", "cache")


class ParameterRefused(ValueError):
    """Raised when a component's parameter cannot be taken: says which, and what would be right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LanesSettings:
    """`name`: its party, and what its lanes are called after. `folder`: its own, on a disk of the node.
    `cache`: of artifacts; several processes may share one. `drain_s`: for what runs, after a TERM."""

    node: str
    node_id: str
    name: str
    folder: Path
    cache: Path
    workers: int
    engine: str = ENGINES[0]
    drain_s: float = 10.0

    def pool(self) -> workerpool.Settings:
        """Those of its workers. Whoever asks for a request repeats it, nobody here."""
        return workerpool.Settings(
            runtime_dir=runtime_dir(self.folder),
            workers=self.workers,
            command=(*OUR_WORKER, "--engine", self.engine),
            quarantine_file=self.folder / "quarantine.json",
            redispatch=False,
        )


def cores() -> int:
    """How many workers there are where nobody says it: one a core."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers_of(given: object) -> int:
    """The number of workers. Raises ParameterRefused."""
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_WORKERS:
        raise ParameterRefused(f"workers is {given!r}; expected a number from 1 to {MOST_WORKERS}")
    return given


def engine_of(given: object) -> str:
    """The engine's name. Raises ParameterRefused."""
    if given not in ENGINES:
        raise ParameterRefused(f"engine is {given!r}; expected one of {', '.join(ENGINES)}")
    return str(given)


def of_parameters(
    given: Mapping[str, int | float | str], *, node: str, node_id: str, name: str, data: Path, drain_s: float
) -> LanesSettings:
    """A component's: `<parameter>` workers, engine, cache; `data` is its working folder. Raises
    ParameterRefused."""
    if unknown := sorted(set(given) - set(PARAMETERS)):
        raise ParameterRefused(f"no parameter {unknown[0]!r}; a lane host has {', '.join(PARAMETERS)}")
    return LanesSettings(
        node=node,
        node_id=node_id,
        name=name,
        folder=data,
        cache=data / Path(str(given["cache"])) if given.get("cache") else data / "cache",
        workers=workers_of(given["workers"]) if "workers" in given else cores(),
        engine=engine_of(given.get("engine", ENGINES[0])),
        drain_s=drain_s,
    )
