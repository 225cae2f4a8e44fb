"""Typed messages: one frozen pydantic model a type, its fields the entries.

A model's fields have Python names; `alias` is the entry's key in the seed's case. Unknown entries are kept and
passed on. An unknown type decodes to a GenericMessage, never an exception. Encoding reads the model's `__dict__`
and decoding calls the core validator once: no dump, no second validation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bakemesh.protocol import envelope
from bakemesh.protocol.errors import MessageError

# Flags are 0 and 1 on the wire (a consumer written from the seed alone compares `== 1`), bool in a model.
Flag = Annotated[bool, Field(strict=False)]
# Bytes on the wire; text is accepted and taken as UTF-8.
Payload = Annotated[bytes, Field(strict=False)]


class Message(BaseModel):
    """Base of every typed message. `TYPE` is the type string; a model without one is a base of others."""

    model_config = ConfigDict(
        frozen=True, extra="allow", strict=True, validate_by_name=True, validate_by_alias=True, hide_input_in_errors=True
    )
    TYPE: ClassVar[str] = ""
    _wire: ClassVar[tuple[tuple[str, str, bool], ...]] = ()  # (field, entry key, is a flag)
    _canonical: ClassVar[dict[str, str]] = {}  # lower-cased key → entry key

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls._wire = tuple(
            (name, field.alias or name, field.annotation is bool) for name, field in cls.model_fields.items()
        )
        cls._canonical = {key.lower(): key for _, key, _ in cls._wire}

    @property
    def type(self) -> str:
        """The message's type string."""
        return self.TYPE

    def entries(self) -> dict[str, Any]:
        """The entries as they go on the wire: flags as 0 and 1, absent ones left out, unknown ones kept."""
        values = self.__dict__
        out: dict[str, Any] = {}
        for name, key, is_flag in self._wire:
            value = values[name]
            if value is not None:
                out[key] = int(value) if is_flag else value
        if extra := self.__pydantic_extra__:
            out.update(extra)
        return out

    @classmethod
    def from_entries(cls, entries: Mapping[str, Any], *, type: str | None = None) -> Self:  # noqa: A002
        """The model of these entries, keys matched without case. Raises MessageError."""
        type = type or cls.TYPE  # noqa: A001
        canonical = cls._canonical
        folded = envelope.fold(entries, type=type)
        renamed = {canonical.get(lower, key): entries[key] for lower, key in folded.items()}
        try:
            return cls.__pydantic_validator__.validate_python(renamed, by_alias=True, by_name=False)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            entry = str(first["loc"][0]) if first["loc"] else None
            raise MessageError(str(first["msg"]), type=type, entry=entry) from error


class GenericMessage(Message):
    """A message of a type that nobody registered: its entries as they came."""

    def entries(self) -> dict[str, Any]:
        """The entries, untouched."""
        return dict(self.__pydantic_extra__ or {})

    @classmethod
    def from_entries(cls, entries: Mapping[str, Any], *, type: str | None = None) -> Self:  # noqa: A002
        """Keeps whatever came. Raises MessageError for keys that are not text or clash."""
        envelope.fold(entries, type=type)
        return cls.model_construct(None, **{}) if not entries else _generic(cls, entries)


def _generic(cls: type[Any], entries: Mapping[str, Any]) -> Any:
    made = cls.model_construct()
    object.__setattr__(made, "__pydantic_extra__", dict(entries))
    return made


@dataclass(frozen=True, slots=True)
class Received:
    """A decoded message with what its envelope said. `type` is the envelope's, whatever the model."""

    type: str
    id: bytes
    created: int
    sender: str
    message: Message


_types: dict[str, type[Message]] = {}
_families: dict[str, type[Message]] = {}
M = TypeVar("M", bound=Message)


def registered(cls: type[M]) -> type[M]:
    """Class decorator: messages of `cls.TYPE` decode to `cls`."""
    if not cls.TYPE or cls.TYPE in _types:
        raise ValueError(f"{cls.__name__}: type {cls.TYPE!r} is empty or taken")
    _types[cls.TYPE] = cls
    return cls


def family(prefix: str) -> Callable[[type[M]], type[M]]:
    """Class decorator: types that begin with `prefix` and are not registered themselves decode to this class."""

    def register(cls: type[M]) -> type[M]:
        _families[prefix] = cls
        return cls

    return register


def types() -> dict[str, type[Message]]:
    """Every registered type, in the order of registration."""
    return dict(_types)


def class_of(type: str) -> type[Message]:  # noqa: A002
    """The model of a type: its own, its family's, or GenericMessage."""
    found = _types.get(type)
    if found is not None:
        return found
    return next((cls for prefix, cls in _families.items() if type.startswith(prefix)), GenericMessage)


def encode(message: Message, *, id: bytes, created: int, sender: str, type: str | None = None) -> bytes:  # noqa: A002
    """The payload of `message`. `id`: 16 random bytes; `created`: µs since the epoch; `sender`: service@NodeID.

    `type` is only for a GenericMessage or another family member, whose model does not know its own.
    """
    return envelope.pack(type or message.TYPE, id, created, sender, message.entries())


def decode(payload: bytes | bytearray | memoryview) -> Received:
    """The message in `payload`. Raises MessageError and nothing else, whatever the bytes."""
    found = envelope.unpack(payload)
    message = class_of(found.type).from_entries(found.entries, type=found.type)
    return Received(found.type, found.id, found.created, found.sender, message)
