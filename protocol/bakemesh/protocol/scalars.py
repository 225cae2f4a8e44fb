"""Which types have nothing but scalar entries, and what each of them may hold, as plain data.

`quick` turns this into a shorter way than pydantic's general one. It may only do what pydantic would,
so a type with anything that is not told here (a validator of its own, another configuration, a map, a default
that is made anew) has no description and goes the long way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from pydantic import AfterValidator, BaseModel, FailFast, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

SCALARS = frozenset({str, bytes, int, float, bool})


class ZeroOrOne:
    """Takes the integers 0 and 1, and bool; nothing that merely looks like it (1.0, "yes")."""

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        # Two core validators and the builtin `bool`: no Python function runs on the way.
        bit = core_schema.int_schema(strict=True, ge=0, le=1)
        return core_schema.union_schema(
            [
                core_schema.no_info_after_validator_function(bool, bit),
                core_schema.bool_schema(strict=True),
            ],
            mode="left_to_right",
            custom_error_type="flag",
            custom_error_message="must be 0 or 1",
        )

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "integer", "enum": [0, 1]}


@dataclass(frozen=True, slots=True)
class Scalar:
    """One entry. `least` and `most` bound a number, `shortest` the length of a text; None: no bound.

    A bool is a flag. `default` is None where the entry may be absent, or is `required`. `check` gives the
    value back, or raises ValueError.
    """

    name: str
    key: str
    kind: type
    required: bool
    default: Any = None
    many: bool = False  # a list of them
    least: int | None = None
    most: int | None = None
    shortest: int | None = None
    check: Callable[[Any], Any] | None = None


class _NotPlain(Exception):
    """Raised when an entry cannot be told as a Scalar."""


def describe(cls: type[BaseModel], base: type[BaseModel]) -> tuple[Scalar, ...] | None:
    """The entries of `cls`, a model below `base`; None where one is not plain, or the model has its own way
    of doing what `base` does.
    """
    decorators = cls.__pydantic_decorators__
    own = (
        decorators.validators or decorators.field_validators or decorators.root_validators,
        decorators.model_validators or cls.__private_attributes__ or cls.__pydantic_post_init__,
        cls.model_config != base.model_config,
        cls.__pydantic_custom_init__ or not cls.__pydantic_complete__,
    )
    if any(own):
        return None
    try:
        return tuple(_scalar(name, field) for name, field in cls.model_fields.items())
    except _NotPlain:
        return None


def _scalar(name: str, field: FieldInfo) -> Scalar:
    default = None if field.is_required() else field.default
    if field.default_factory is not None or field.validation_alias != field.alias:
        raise _NotPlain
    begun = Scalar(name, field.alias or name, NoneType, field.is_required(), default)
    made = _typed(begun, field.annotation, field.metadata)
    may_be_none = NoneType in get_args(field.annotation)
    if may_be_none is not (default is None and not made.required):
        raise _NotPlain
    return made


def _typed(entry: Scalar, annotation: Any, metadata: Iterable[Any]) -> Scalar:
    """With what an annotation says; what it carries inside comes before what is put on it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _typed(entry, arguments[0], [*_flat(arguments[1:]), *metadata])
    if origin in (Union, UnionType):
        some = [each for each in arguments if each is not NoneType]
        if len(some) != 1 or list(metadata):
            raise _NotPlain
        return _typed(entry, some[0], ())
    if origin is list and not entry.many:
        if not all(isinstance(each, FailFast) for each in metadata):
            raise _NotPlain
        return _typed(replace(entry, many=True), arguments[0], ())
    if annotation not in SCALARS:
        raise _NotPlain
    return _bounded(replace(entry, kind=annotation), list(_flat(metadata)))


def _bounded(entry: Scalar, metadata: list[Any]) -> Scalar:
    if entry.kind is bool:
        if entry.many or len(metadata) != 1 or not isinstance(metadata[0], ZeroOrOne):
            raise _NotPlain
        return entry
    for each in metadata:
        match each:
            case Ge(ge=int(least)) if entry.kind is int:
                entry = replace(entry, least=least)
            case Le(le=int(most)) if entry.kind is int:
                entry = replace(entry, most=most)
            case MinLen(min_length=shortest) if entry.kind is str:
                entry = replace(entry, shortest=shortest)
            case AfterValidator(func=check) if entry.check is None and not entry.many:
                entry = replace(entry, check=check)  # type: ignore[arg-type]
            case Strict(strict=False) if entry.kind is bytes:
                pass  # text is taken too, the long way
            case _:
                raise _NotPlain
    if entry.check is not None and not entry.required:
        raise _NotPlain
    return entry


def _flat(metadata: Iterable[Any]) -> Iterable[Any]:
    for each in metadata:
        if isinstance(each, FieldInfo):
            yield from each.metadata
        else:
            yield each
