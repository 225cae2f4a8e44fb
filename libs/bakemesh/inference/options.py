"""What every kind of call may say besides what it asks for, as keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from bakemesh.inference.asking import schema_of
from bakemesh.inference.results import Usage

Pooling = Literal["mean", "cls", "last"]
WorkClass = Literal["interactive", "bulk", "control"]


class CallOptions(TypedDict, total=False):
    """Keywords of every call for work.

    `node`: a name or id, the only one that is asked; absent: the one that would be done first. `deadline_s`:
    seconds until there is a result or an error; absent: the client's. `work_class`: interactive (default),
    bulk, control. `priority`: −100 to 100 within the class, higher first. `usage`: counts are added to it.
    `traceparent`: of who asked the caller (W3C Trace Context); what is done here is below it.
    """

    node: str | None
    deadline_s: float | None
    work_class: WorkClass
    priority: int
    usage: Usage | None
    traceparent: str | None


class GenerateOptions(CallOptions, total=False):
    """Keywords of a generation. Without `temperature` it is greedy; the same `seed`, model and build give the
    same tokens. `stop`: up to 16 strings, the text ends before the first that comes. `grammar` (GBNF),
    `json_schema` (text or a map): honoured, or CapabilityAbsent.
    """

    max_tokens: int
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    stop: Sequence[str] | None
    grammar: str | None
    json_schema: str | Mapping[str, Any] | None


_ENTRIES = {
    "max_tokens": "maxtokens",
    "temperature": "temperature",
    "top_k": "topk",
    "top_p": "topp",
    "min_p": "minp",
    "seed": "seed",
    "grammar": "grammar",
    "priority": "priority",
    "work_class": "class",
}


def check(options: Mapping[str, Any], kind: type[CallOptions]) -> None:
    """Raises TypeError for a keyword that there is not, as a plain function would."""
    for name in options:
        if name not in kind.__annotations__ and name not in CallOptions.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}")


def entries_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that they make in a request."""
    found = {entry: options[name] for name, entry in _ENTRIES.items() if options.get(name) is not None}
    if "temperature" in found:
        found["temperature"] = float(found["temperature"])
    if (stop := options.get("stop")) is not None:
        found["stop"] = [stop] if isinstance(stop, str) else list(stop)
    if (schema := options.get("json_schema")) is not None:
        found["jsonschema"] = schema_of(schema)
    return found
