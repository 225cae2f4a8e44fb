"""The engines, by name. Each is imported when it is made: the fake one needs no engine installed."""

from __future__ import annotations

from importlib import import_module

from bakemesh.worker.engines.base import Engine

NAMES = ("llama", "fake")


class NoSuchEngine(LookupError):
    """Raised when a worker is asked for an engine that there is not."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no engine {name!r}; there are {', '.join(NAMES)}")


def make(name: str) -> Engine:
    """The engine of that name. Raises NoSuchEngine, or ImportError where its package is not installed."""
    if name not in NAMES:
        raise NoSuchEngine(name)
    made: Engine = import_module(f"bakemesh.worker.engines.{name}").make()
    return made
