"""The models that may be asked for, by alias: what the library has, as the core knows it.

Guarantees: a request for an alias that is not here is refused by a typed error that names those that are; one
that is being ingested is `model_loading`. Left out: the files (`models`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.synapse.models.library import Library
from bakemesh.synapse.models.model import Model
from bakemesh.synapse.scheduling.asks import Failed
from bakemesh.synapse.scheduling.core import Core
from bakemesh.workerpool.models import ModelKey

_NAMED = 8  # aliases in an error's text


@dataclass(slots=True)
class Known:
    """A model that the core knows by `key`. `warm`: its vocabulary is in memory."""

    alias: str
    model: Model
    key: ModelKey
    warm: bool = field(default=False, compare=False)


class Shelf:
    """See the module."""

    def __init__(self, library: Library, core: Core) -> None:
        self.library, self._core = library, core
        self._known: dict[str, Known] = {}
        self.coming: set[str] = set()  # aliases that are being ingested
        for model in library.all():
            self.put(model)

    def put(self, model: Model) -> Known:
        """Its alias is this model from now on."""
        made = self._known[model.alias] = Known(model.alias, model, self._core.know(model))
        return made

    def all(self) -> list[Known]:
        """Every one, by alias."""
        return [self._known[alias] for alias in sorted(self._known)]

    def get(self, alias: str) -> Known | None:
        """The one of that alias."""
        return self._known.get(alias)

    def find(self, alias: str, kind: str | None = None) -> Known:
        """The one of that alias, which must be of `kind`. Raises Failed."""
        found = self._known.get(alias)
        if found is None:
            raise Failed(self._missing(alias))
        if kind is not None and found.model.manifest.kind != kind:
            said = f"the model {alias} is one to {found.model.manifest.kind}, not to {kind}"
            raise Failed(error_of(Code.BAD_REQUEST, said))
        return found

    def _missing(self, alias: str) -> ErrorObject:
        if alias in self.coming:
            said = f"the model {alias} is being read into the cache"
            return error_of(Code.MODEL_LOADING, said, retry_after_ms=1000)
        here = sorted(self._known)
        more = f" and {len(here) - _NAMED} more" if len(here) > _NAMED else ""
        said = f"there are {', '.join(here[:_NAMED])}{more}" if here else "it has none"
        return error_of(Code.MODEL_UNKNOWN, f"no model {alias} on this node; {said}")
