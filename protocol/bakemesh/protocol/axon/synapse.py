"""A synapse: a request and its answer in one pydantic class, whose name is its route.

    class Echo(Synapse):
        text: str = ""
        reply: str | None = None                      # what the handler fills in
        required_hash_fields: ClassVar = ("text",)    # what the sdk profile signs of the body

Source: the bittensor-synapse document, "Synapse Trait"; the field names are those of the real SDK, so that
its classes can be copied. What is known of a class is computed once, not a request. An accessor of the
document (`timeout()`) is the attribute; `set_timeout` and its like set without checks.
Left out: sending, signing, verifying.
"""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
)
from pydantic_core import from_json

from bakemesh.protocol.axon import keys
from bakemesh.protocol.axon.errors import DeserializationFailed, InvalidHeaderValue
from bakemesh.protocol.axon.hashing import EMPTY, fields_hash, sha3_256_hex
from bakemesh.protocol.axon.headers import parse_header, parse_header_f64
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.reading import read, told
from bakemesh.protocol.axon.terminal import U64, TerminalInfo, unsigned
from bakemesh.protocol.axon.verdicts import printable

TIMEOUT_S = 12.0
ENVELOPE = frozenset(
    {
        "name",
        "timeout",
        "total_size",
        "header_size",
        "dendrite",
        "axon",
        "computed_body_hash",
        "required_hash_fields",
    }
)

Terminal = Annotated[
    TerminalInfo,
    BeforeValidator(
        lambda value: value if isinstance(value, TerminalInfo) else TerminalInfo.leniently(value)
    ),
]


def _size(value: Any) -> int:
    """A size as a body tells it; one that cannot be read is 0, since nothing depends on it."""
    return value if isinstance(value, int) and 0 <= value <= U64 else 0


def _seconds(value: float) -> float:
    if not value >= 0:
        raise ValueError(f"{value} is no number of seconds from 0 on")
    return value


class Synapse(BaseModel):
    """Base of every synapse; by itself it is the ping `/Synapse`.

    `Output`: the type of an answer's body where it is not the synapse itself. `required_hash_fields`: the
    inputs that the sdk profile signs, in this order.
    """

    model_config = ConfigDict(
        validate_assignment=True,
        extra="ignore",
        validate_by_name=True,
        validate_by_alias=True,
        ser_json_inf_nan="constants",  # NaN as Python's json has it: a `null` could not be read back
    )

    name: str = "Synapse"
    timeout: Annotated[float, AfterValidator(_seconds)] = TIMEOUT_S
    total_size: Annotated[int, BeforeValidator(_size)] = 0
    header_size: Annotated[int, BeforeValidator(_size)] = 0
    dendrite: SerializeAsAny[Terminal] = Field(default_factory=TerminalInfo)
    axon: SerializeAsAny[Terminal] = Field(default_factory=TerminalInfo)
    computed_body_hash: str = ""

    # Behind the fields as in the real SDK: a class that declares it as a field, the older way, has it here.
    required_hash_fields: ClassVar[tuple[str, ...]] = ()
    Output: ClassVar[type[Any] | None] = None

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        super().__pydantic_init_subclass__(**more)
        field = cls.model_fields["name"]
        if "name" not in inspect.get_annotations(cls) and field.default != cls.__name__:
            field.default = cls.__name__
            cls.model_rebuild(force=True, raise_errors=False)

    @classmethod
    def route(cls) -> str:
        """The name under which an axon serves this class: the default of `name`, the class's own unless told
        otherwise.
        """
        return str(cls.model_fields["name"].default)

    # -- setting, as the document names it

    def set_timeout(self, timeout: float) -> None:
        """Seconds."""
        self.__dict__["timeout"] = float(timeout)

    def set_dendrite(self, info: TerminalInfo) -> None:
        """Who asks."""
        self.__dict__["dendrite"] = info

    def set_axon(self, info: TerminalInfo) -> None:
        """Who answers."""
        self.__dict__["axon"] = info

    def set_computed_body_hash(self, digest: str) -> None:
        """The hash that was signed."""
        self.__dict__["computed_body_hash"] = digest

    def set_total_size(self, size: int) -> None:
        """Bytes of the body."""
        self.__dict__["total_size"] = size

    def set_header_size(self, size: int) -> None:
        """Characters of all headers."""
        self.__dict__["header_size"] = size

    # -- how it ended, as the dendrite wrote it down

    @property
    def is_success(self) -> bool:
        """Whether the axon said that it did what was asked."""
        return self.dendrite.status_code == 200

    @property
    def is_timeout(self) -> bool:
        """Whether the time was over."""
        return self.dendrite.status_code == 408

    @property
    def is_blacklist(self) -> bool:
        """Whether the axon does not serve this hotkey."""
        return self.dendrite.status_code == 403

    @property
    def failed_verification(self) -> bool:
        """Whether the axon could not verify the request."""
        return self.dendrite.status_code == 401

    # -- the body

    def body(self) -> bytes:
        """The synapse as JSON, as it is now: what is hashed in the synapse profile must be these bytes."""
        return self.__pydantic_serializer__.to_json(self)

    def body_hash(self, profile: Profile = Profile.SYNAPSE) -> str:
        """The hash that this profile signs: of the body's bytes, or of the declared fields."""
        return sha3_256_hex(self.body()) if profile is not Profile.SDK else self.declared_hash()

    def declared_hash(self) -> str:
        """The real SDK's hash: over `required_hash_fields`, as Python writes their values."""
        names = shape(type(self)).hashed
        if not names:
            return EMPTY
        dumped = self.__pydantic_serializer__.to_python(self, include=set(names))
        return fields_hash(dumped[name] for name in names)

    @classmethod
    def deserialize_body(cls, body: bytes) -> Any:
        """An answer's body as `Output`, or as this class. Raises DeserializationFailed."""
        return read(_output(cls), body)

    @classmethod
    def from_body(cls, body: bytes) -> Self:
        """A request's body as this class. Raises DeserializationFailed, InvalidTensor."""
        found: Self = read(cls, body)
        return found

    def output(self) -> Any:
        """What the synapse profile answers with: `Output` filled from the fields of the same names."""
        kind = self.Output
        if kind is None:
            return self
        return kind(**{name: getattr(self, name) for name in kind.model_fields})

    # -- the headers

    def to_headers(self, profile: Profile = Profile.SYNAPSE) -> dict[str, str]:
        """All headers of this synapse, in the order in which the real SDK sends them. A hash and a size that
        are not set are those of the body as it is now.
        """
        values = self.__dict__
        headers = {keys.NAME: printable(values["name"]), keys.TIMEOUT: str(values["timeout"])}
        headers |= values["axon"].to_headers_with_prefix(keys.AXON_PREFIX)
        headers |= values["dendrite"].to_headers_with_prefix(keys.DENDRITE_PREFIX)
        if profile is Profile.SDK:
            headers |= shape(type(self)).dummies
        digest, total = values["computed_body_hash"], values["total_size"]
        if not digest or not total:
            body = self.body()
            total = total or len(body)
            digest = digest or (self.declared_hash() if profile is Profile.SDK else sha3_256_hex(body))
        last = {keys.TOTAL_SIZE: str(total), keys.COMPUTED_BODY_HASH: printable(digest)}
        size = values["header_size"] or _letters(headers) + _letters(last)
        return headers | {keys.HEADER_SIZE: str(size)} | last

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self:
        """A synapse of which only the headers are known; its own fields are as `bt_header_input_obj_*` say,
        else their defaults. Raises MissingHeader, InvalidHeaderValue, DeserializationFailed.
        """
        timeout = parse_header_f64(headers, keys.TIMEOUT)
        if not timeout >= 0:
            raise InvalidHeaderValue(keys.TIMEOUT, f"{timeout} is no number of seconds from 0 on")
        found: dict[str, Any] = {
            "name": parse_header(headers, keys.NAME),
            "timeout": timeout,
            "axon": TerminalInfo.from_headers_with_prefix(headers, keys.AXON_PREFIX),
            "dendrite": TerminalInfo.from_headers_with_prefix(headers, keys.DENDRITE_PREFIX),
            "computed_body_hash": headers.get(keys.COMPUTED_BODY_HASH, ""),
        }
        for key in (keys.HEADER_SIZE, keys.TOTAL_SIZE):
            if key in headers:
                try:
                    found[key] = unsigned(headers[key], U64)
                except ValueError as error:
                    raise InvalidHeaderValue(key, error) from None
        for name in shape(cls).inputs:
            key = keys.INPUT_OBJ_PREFIX + name
            value = headers.get(key, headers.get(key.lower()))  # HTTP leaves no upper case
            if value is not None:
                try:
                    found[name] = from_json(base64.b64decode(value, validate=True))
                except ValueError:
                    continue  # as a field of a TerminalInfo that cannot be read
        try:
            return cls.model_validate(found, by_alias=False, by_name=True)
        except ValidationError as error:
            raise DeserializationFailed(told(error)) from None


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a class: `inputs`: its own fields; `hashed`: those that the sdk profile signs;
    `dummies`: the headers that the real axon needs for a field without a default.
    """

    inputs: tuple[str, ...]
    hashed: tuple[str, ...]
    dummies: dict[str, str]


@lru_cache(maxsize=1024)
def shape(cls: type[Synapse]) -> Shape:
    """What is known of this class. Raises TypeError where a hashed field is none of its fields."""
    inputs = tuple(name for name in cls.model_fields if name not in ENVELOPE)
    hashed = tuple(cls.required_hash_fields)
    declared = cls.model_fields.get("required_hash_fields")
    if declared is not None:  # the older way, as a field: the order is that of the fields
        listed = declared.get_default(call_default_factory=True) or ()
        hashed = tuple(name for name in cls.model_fields if name in listed)
    if unknown := [name for name in hashed if name not in cls.model_fields]:
        raise TypeError(f"{cls.__name__}.required_hash_fields names {unknown[0]!r}, which is no field of it")
    if kept := [name for name in hashed if cls.model_fields[name].exclude]:
        raise TypeError(
            f"{cls.__name__}.required_hash_fields names {kept[0]!r}, which is excluded from the body"
        )
    dummies = {
        keys.INPUT_OBJ_PREFIX + name: base64.b64encode(json.dumps(_dummy(cls, name)).encode()).decode()
        for name in inputs
        if cls.model_fields[name].is_required()
    }
    return Shape(inputs, hashed, dummies)


def _dummy(cls: type[Synapse], name: str) -> Any:
    """An empty value of the field's kind: `{}` for a model, as the real SDK makes it of a dumped one."""
    annotation: Any = cls.model_fields[name].annotation
    kind = getattr(annotation, "__origin__", annotation)
    if kind in (tuple, set, frozenset):
        return []
    if isinstance(kind, type):
        for base, empty in ((bool, False), (int, 0), (float, 0.0), (str, ""), (list, []), (dict, {})):
            if issubclass(kind, base):
                return empty
        if issubclass(kind, BaseModel):
            return {}
    return ""


def _output(cls: type[Synapse]) -> type[Any]:
    return cls.Output or cls


def _letters(headers: Mapping[str, str]) -> int:
    return sum(map(len, headers)) + sum(map(len, headers.values()))
