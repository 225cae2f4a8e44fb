"""The loaded models, by the names that the worker minted for them."""

from __future__ import annotations

from typing import Any

from bakemesh.worker.engines.base import Engine, EngineError


class UnknownModel(EngineError):
    """Raised when a model_ref names nothing that is loaded here."""

    def __init__(self, ref: str) -> None:
        super().__init__("unknown_model", f"no model {ref!r:.100} is loaded in this worker")


class Models:
    """`llama:0`, `llama:1`, …: a name is never used twice in a process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loaded: dict[str, Any] = {}
        self._minted = 0

    def __len__(self) -> int:
        return len(self._loaded)

    def keep(self, model: Any) -> str:
        """Takes a model in, gives its name."""
        ref = f"{self._engine.name}:{self._minted}"
        self._minted += 1
        self._loaded[ref] = model
        return ref

    def get(self, ref: str) -> Any:
        """The model of that name. Raises UnknownModel."""
        found = self._loaded.get(ref)
        if found is None:
            raise UnknownModel(ref)
        return found

    def drop(self, ref: str) -> None:
        """Unloads it; one that is not loaded is unloaded already."""
        found = self._loaded.pop(ref, None)
        if found is not None:
            self._engine.unload(found)
