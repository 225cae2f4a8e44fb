"""The JSON Schema of each message, generated from the models.

A schema describes the decoded msgpack map, so JSON's kinds are not enough: `x-msgpack` names the kind on the
wire, and a `bin` is written as base64 where such a map is shown as JSON. Two rules that a schema cannot say:
entry keys match without case, and an entry that is absent is left out, never null. Writing the files:
protocol/generate.py.
"""

from __future__ import annotations

from typing import Any

from bakemesh.protocol import message
from bakemesh.protocol import startup as _startup  # noqa: F401  (the imports fill the registry)
from bakemesh.protocol.builder import messages as _messages  # noqa: F401
from bakemesh.protocol.builder import node as _node  # noqa: F401
from bakemesh.protocol.envelope import ID_BYTES, VERSION
from bakemesh.protocol.inference import answers as _answers  # noqa: F401
from bakemesh.protocol.inference import lanes as _lanes  # noqa: F401
from bakemesh.protocol.message import Message

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_KINDS = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "array",
    "object": "map",
}
_BIN = {"type": "string", "contentEncoding": "base64", "x-msgpack": "bin"}


def schema(cls: type[Message]) -> dict[str, Any]:
    """The schema of a whole message of `cls.TYPE`, envelope and entries."""
    return {
        "$schema": DIALECT,
        "title": cls.TYPE,
        "description": (cls.__doc__ or "").split("\n\n")[0].strip(),
        "type": "object",
        "properties": {
            "v": {"const": VERSION, "x-msgpack": "int"},
            "type": {"const": cls.TYPE, "x-msgpack": "str"},
            "id": {**_BIN, "description": f"{ID_BYTES} random bytes"},
            "created": {
                "type": "integer",
                "minimum": 0,
                "description": "µs since the epoch",
                "x-msgpack": "int",
            },
            "from": {"type": "string", "description": "<service>@<NodeID>", "x-msgpack": "str"},
            "entries": entries(cls),
        },
        "required": ["v", "type", "id", "created", "from", "entries"],
    }


def entries(cls: type[Message]) -> dict[str, Any]:
    """The schema of the entries of `cls`. Unknown entries are allowed: they are kept and passed on."""
    raw = cls.model_json_schema(by_alias=True, mode="validation")
    out: dict[str, Any] = {
        "type": "object",
        "properties": {key: _entry(value) for key, value in raw.get("properties", {}).items()},
        "required": raw.get("required", []),
        "x-msgpack": "map",
    }
    return out


def files() -> dict[str, dict[str, Any]]:
    """Every schema, by the name of its file."""
    return {f"{type_}.json": schema(cls) for type_, cls in sorted(message.types().items())}


def _entry(value: dict[str, Any]) -> dict[str, Any]:
    """One entry: without pydantic's titles, without null (what is absent is left out), with its wire kind."""
    options = [option for option in value.get("anyOf", []) if option.get("type") != "null"]
    if len(options) == 1:
        value = {**{key: item for key, item in value.items() if key != "anyOf"}, **options[0]}
    if value.get("format") == "binary":
        return dict(_BIN)
    out = {key: item for key, item in value.items() if key not in ("title", "additionalProperties")}
    if out.get("default", ...) is None:
        del out["default"]
    if out.get("default") in (True, False) and out.get("enum") == [0, 1]:
        out["default"] = int(out["default"])
    if isinstance(out.get("items"), dict):
        out["items"] = _entry(out["items"])
    if kind := _KINDS.get(str(out.get("type"))):
        out["x-msgpack"] = kind
    return out
