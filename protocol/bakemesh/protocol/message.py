"""Typed messages: one frozen pydantic model a type, its fields the entries.

A model's fields have Python names; `alias` is the entry's key in the contract's case. Unknown entries are
kept and passed on. An unknown type decodes to a GenericMessage, never an exception. Encoding reads the
model's `__dict__` and decoding calls the core validator once: no dump, no second validation. Types whose
entries are scalars take a shorter way still where it is installed (see `quick`).

A type is known once the module of its model was imported; `admit` imports those of this package. Left out on
purpose: where a message may be sent (see `subjects`) and whether to believe it (see `admit`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypeVar,
    cast,
)

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bakemesh.protocol import envelope, quick, scalars
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.scalars import ZeroOrOne

# Flags are 0 and 1 on the wire (the simplest consumer compares `== 1`), bool in a model.
Flag = Annotated[bool, ZeroOrOne()]
# Bytes on the wire; text is accepted and taken as UTF-8.
Payload = Annotated[bytes, Field(strict=False)]


class Message(BaseModel):
    """Base of every typed message. `TYPE` is the type string; a model without one is a base of others.

    Entries that a message arrives with and that its type does not have are kept; none is made with them.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",  # what arrives is validated with "allow" where something unknown is there
        json_schema_extra={"additionalProperties": True},
        strict=True,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )
    TYPE: ClassVar[str] = ""
    _canonical: ClassVar[dict[str, str]] = {}  # lower-cased key → entry key
    _key_of: ClassVar[dict[str, str]] = {}  # field → entry key
    _keys: ClassVar[frozenset[str]] = frozenset()  # entry keys
    _flags: ClassVar[tuple[tuple[str, str], ...]] = ()  # (field, entry key) of those that are 0 or 1
    _plan: ClassVar[quick.Plan | None] = None  # how it is read and written the short way

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        fields = cls.model_fields.items()
        cls._key_of = {name: field.alias or name for name, field in fields}
        cls._keys = frozenset(cls._key_of.values())
        cls._canonical = {key.lower(): key for key in cls._keys}
        cls._flags = tuple((name, cls._key_of[name]) for name, field in fields if field.annotation is bool)
        plain = scalars.describe(cls, Message)
        own = cls.entries is not Message.entries or any(
            "from_entries" in vars(each) for each in cls.__mro__ if each is not Message
        )
        cls._plan = None if own else quick.plan(plain)

    if not TYPE_CHECKING:  # a type checker would take every attribute for one that is there

        def __getattr__(self, name: str) -> Any:
            # One that came the short way has this only when somebody asks: few do.
            if name != "__pydantic_fields_set__":
                return super().__getattr__(name)
            given = {name for name, value in self.__dict__.items() if value is not None}
            object.__setattr__(self, "__pydantic_fields_set__", given)
            return given

    def with_values(self, **values: Any) -> Self:
        """This message with some other values, by field; they are taken as they are. `model_copy` does the
        same, and takes longer for it than the rest of sending a message does."""
        made = _new(type(self))
        _put_values(made, self.__dict__ | values)
        _put_extra(made, self.__pydantic_extra__)
        _put_private(made, None)
        return made

    @property
    def type(self) -> str:
        """The message's type string."""
        return self.TYPE

    def entries(self) -> dict[str, Any]:
        """The entries as they go on the wire: flags as 0 and 1, absent ones left out, unknown ones kept."""
        values = self.__dict__
        key_of = self._key_of
        out = {key_of[name]: value for name, value in values.items() if value is not None}
        for name, key in self._flags:
            out[key] = 1 if values[name] else 0
        if extra := self.__pydantic_extra__:
            out.update(extra)
        return out

    @classmethod
    def from_entries(cls, entries: Mapping[Any, Any], type: str | None = None) -> Self:  # noqa: A002
        """The model of these entries, keys matched without case. Raises MessageError."""
        if entries.keys() <= cls._keys:
            # Where every key is known as it is written, no two can differ only in case: nothing to fold.
            try:
                message = cls.__pydantic_validator__.validate_python(entries, by_alias=True, by_name=False)
            except ValidationError:
                pass  # folded they give the better reason
            else:
                return cast(Self, message)
        return cls._from_folded(entries, type or cls.TYPE)

    @classmethod
    def _from_folded(cls, entries: Mapping[Any, Any], type: str) -> Self:  # noqa: A002
        folded = envelope.fold(entries, type=type)
        canonical = cls._canonical
        renamed = {canonical.get(lower, key): entries[key] for lower, key in folded.items()}
        try:
            message = cls.__pydantic_validator__.validate_python(
                renamed, extra="allow", by_alias=True, by_name=False
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            entry = ".".join(str(part) for part in first["loc"])[:80]
            raise MessageError(str(first["msg"]), type=type, entry=entry or None) from error
        return cast(Self, message)


class GenericMessage(Message):
    """A message of a type that nobody registered: every entry is an unknown one, kept as it came."""

    model_config = ConfigDict(extra="allow")


class Received(NamedTuple):
    """A decoded message with what its envelope said. `type` is the envelope's, whatever the model."""

    type: str
    id: bytes
    created: int
    sender: str
    message: Message


_tuple = tuple.__new__
_new = object.__new__
# What a model is made of; frozen ones can be written by these alone.
_put_values, _put_extra, _put_private = (
    vars(BaseModel)[slot].__set__ for slot in ("__dict__", "__pydantic_extra__", "__pydantic_private__")
)
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
    """Class decorator: types that begin with `prefix`, but those registered, decode to this class."""

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


def encode(
    message: Message,
    *,
    id: bytes,  # noqa: A002
    created: int,
    sender: str,
    type: str | None = None,  # noqa: A002
) -> bytes:
    """The payload of `message`. `id`: 16 random bytes; `created`: µs since the epoch; `sender`:
    service@NodeID.

    `type` is only for a GenericMessage or another family member, whose model does not know its own.
    """
    kind, plan = type or message.TYPE, message._plan
    if plan is not None and not message.__pydantic_extra__:
        try:
            return plan.write(kind, id, created, sender, message.__dict__)
        except (TypeError, ValueError, OverflowError):
            pass  # the long way says what is wrong
    return envelope.pack(kind, id, created, sender, message.entries())


def opened(found: tuple[str, bytes, int, str, dict[Any, Any]]) -> Received:
    """The message in an Envelope, or in its bare fields. Raises MessageError."""
    kind, id, created, sender, entries = found  # noqa: A001
    model = _types.get(kind) or class_of(kind)
    # As Received(…) does, without the Python function that a NamedTuple puts before it.
    return _tuple(Received, (kind, id, created, sender, model.from_entries(entries, kind)))


def quickly(payload: bytes | bytearray | memoryview, kind: str) -> Received | None:
    """The message of type `kind` in `payload` where the short way reads it; None: the long way is to judge.
    Never raises.
    """
    model = _types.get(kind)
    if model is None or (plan := model._plan) is None:
        return None
    try:
        found, values = plan.read(payload)
    except (ValueError, RecursionError):
        return None
    if found.type != kind:
        return None
    # The values are checked: what pydantic's validator would do with them, without looking at them again.
    message = _new(model)
    _put_values(message, values)
    _put_extra(message, None)
    _put_private(message, None)
    return _tuple(Received, (kind, found.id, found.created, found.sender, message))


def decode(payload: bytes | bytearray | memoryview) -> Received:
    """The message in `payload`. Raises MessageError and nothing else, whatever the bytes."""
    return opened(envelope.fields_of(payload))
