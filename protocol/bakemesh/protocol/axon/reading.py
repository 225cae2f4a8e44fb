"""JSON bodies that a stranger wrote, read as a class says.

Guarantee: a body with millions of wrong values costs no more than a right one of its size: in a list or a map
reading ends at the first of them. (pydantic goes on, and keeps each: 16 MiB are 3 s and 2 GB of memory.)
The classes themselves are left as they are. Source: protocol/axon-v1.md, section 6.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from bakemesh.protocol.axon.errors import DeserializationFailed

MOST_TOLD = 1000
_LONGEST_TOLD = 200
_DEEPEST_TOLD = 8
_MANY = frozenset({"list", "tuple", "set", "frozenset", "dict"})
# Parts of a schema that hold values, not schemas.
_VALUES = frozenset(
    {"cls", "config", "default", "default_factory", "expected", "function", "metadata", "serialization"}
)
_NAMED = frozenset({"fields", "choices"})


def read(kind: Any, body: bytes) -> Any:
    """JSON bytes as this type. Raises DeserializationFailed, InvalidTensor; both say where and what."""
    try:
        return _validator(kind).validate_json(body)
    except ValidationError as error:
        raise DeserializationFailed(told(error)) from None


def told(error: ValidationError) -> str:
    """The first thing that is wrong, in a line."""
    count = error.error_count()
    if count > MOST_TOLD:  # a list of them all is made to tell one
        return f"the body: {count} values are not what {error.title[:40]} says"
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    more = f" (and {count - 1} more)" if count > 1 else ""
    return f"{_where(first['loc'])}: {first['msg'][:_LONGEST_TOLD]}{more}"


def _where(place: tuple[int | str, ...]) -> str:
    return ".".join(str(each)[:40] for each in place[:_DEEPEST_TOLD]) or "the body"


@lru_cache(maxsize=1024)
def _validator(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        kind.model_rebuild()  # where a name of an annotation was not there when the class was made
        schema, own = kind.__pydantic_core_schema__, kind.__pydantic_validator__
    else:
        adapter = TypeAdapter(kind)
        schema, own = adapter.core_schema, adapter.validator
    if not isinstance(schema, dict):
        return own
    made: Any = SchemaValidator
    # Without the finished validators of the classes within, which know nothing of this.
    return made(_failing_fast(schema), _use_prebuilt=False)


def _failing_fast(schema: Any) -> Any:
    if isinstance(schema, dict):
        found = {key: _part(key, each) for key, each in schema.items()}
        if found.get("type") in _MANY:
            found["fail_fast"] = True
        return found
    if isinstance(schema, list | tuple):
        return type(schema)(map(_failing_fast, schema))
    return schema


def _part(key: str, part: Any) -> Any:
    if key in _VALUES:
        return part
    if key in _NAMED and isinstance(part, dict):  # names are the author's: they say nothing of the part
        return {name: _failing_fast(each) for name, each in part.items()}
    return _failing_fast(part)
