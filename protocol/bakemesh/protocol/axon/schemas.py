"""JSON Schemas of the built-in synapses: a request's body, and an answer's in the synapse profile.

Writing the files: protocol/generate.py.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from bakemesh.protocol.axon.builtin import BUILTIN
from bakemesh.protocol.axon.synapse import Synapse
from bakemesh.protocol.schemas import DIALECT


def files() -> dict[str, dict[str, Any]]:
    """Every schema, by the name of its file."""
    out = {f"axon.{Synapse.route()}.json": _schema(Synapse, f"POST /{Synapse.route()}")}
    for cls in BUILTIN:
        out[f"axon.{cls.route()}.json"] = _schema(cls, f"POST /{cls.route()}")
        if cls.Output is not None:
            out[f"axon.{cls.route()}.Output.json"] = _schema(cls.Output, f"the answer of {cls.route()}")
    return out


def _schema(cls: type[BaseModel], title: str) -> dict[str, Any]:
    said = cls.model_json_schema(mode="validation")
    said["description"] = (cls.__doc__ or "").split("\n\n")[0].strip()
    return {"$schema": DIALECT, **said, "title": title}
