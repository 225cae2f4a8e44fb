"""TerminalInfo: what is told of one end of a request. Source: the bittensor-synapse document, "TerminalInfo".

A field that is absent is None and is not sent; one that cannot be read, a number outside the document's
integer type too, becomes None.
Guarantees: what `to_headers_with_prefix` gives may stand in a header, whatever the fields hold: a line break
that came in a body never becomes a header of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from bakemesh.protocol.axon.verdicts import printable

_INTEGER = re.compile(r"\+?[0-9]{1,20}", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)",
    re.ASCII | re.IGNORECASE,
)

U16, U32, U64 = 2**16 - 1, 2**32 - 1, 2**64 - 1
_Unsigned16 = Annotated[int, Field(ge=0, le=U16)]
_Unsigned32 = Annotated[int, Field(ge=0, le=U32)]
_Unsigned64 = Annotated[int, Field(ge=0, le=U64)]


def unsigned(text: str, most: int) -> int:
    """A decimal number from 0 to `most`, written plainly. Raises ValueError."""
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is no whole number")
    value = int(text)
    if value > most:
        raise ValueError(f"{value} is more than {most}")
    return value


def number(text: str) -> float:
    """A floating-point number, written plainly. Raises ValueError."""
    if len(text) > 64 or _FLOAT.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is no number")
    return float(text)


def _word(text: str) -> str:
    return text


_READERS: dict[str, Callable[[str], Any]] = {
    "status_code": lambda text: unsigned(text, U16),
    "status_message": _word,
    "process_time": number,
    "ip": _word,
    "port": lambda text: unsigned(text, U16),
    "version": lambda text: unsigned(text, U32),
    "nonce": lambda text: unsigned(text, U64),
    "uuid": _word,
    "hotkey": _word,
    "signature": _word,
}
_NAMES = tuple(_READERS)
_NOTHING: dict[str, Any] = dict.fromkeys(_NAMES)
_LIMITS = {"status_code": U16, "port": U16, "version": U32, "nonce": U64}


@lru_cache(maxsize=64)
def _prefixed(prefix: str) -> tuple[tuple[str, str, Callable[[str], Any]], ...]:
    return tuple((prefix + name, name, read) for name, read in _READERS.items())


class TerminalInfo(BaseModel):
    """One end: the dendrite that asks, or the axon that answers."""

    model_config = ConfigDict(extra="ignore")

    status_code: _Unsigned16 | None = None
    status_message: str | None = None
    process_time: float | None = None
    ip: str | None = None
    port: _Unsigned16 | None = None
    version: _Unsigned32 | None = None
    nonce: _Unsigned64 | None = None
    uuid: str | None = None
    hotkey: str | None = None
    signature: str | None = None

    def to_headers_with_prefix(self, prefix: str) -> dict[str, str]:
        """The fields that are there, each behind the prefix."""
        values = self.__dict__
        return {
            key: _text(value) for key, name, _ in _prefixed(prefix) if (value := values[name]) is not None
        }

    @classmethod
    def from_headers_with_prefix(cls, headers: Mapping[str, str], prefix: str) -> TerminalInfo:
        """Reads what is there; what cannot be read is None."""
        found: dict[str, Any] = {}
        for key, name, read in _prefixed(prefix):
            text = headers.get(key)
            if text is not None:
                try:
                    found[name] = read(text)
                except ValueError:
                    continue
        return cls.of(found)

    @classmethod
    def of(cls, found: dict[str, Any]) -> TerminalInfo:
        """One of values that are checked already: as `model_construct` makes it, at a tenth of its price,
        which every request pays four times.
        """
        made = cls.__new__(cls)
        put = object.__setattr__
        put(made, "__dict__", _NOTHING | found)
        put(made, "__pydantic_fields_set__", set(found))
        put(made, "__pydantic_extra__", None)
        put(made, "__pydantic_private__", None)
        return made

    @classmethod
    def leniently(cls, value: Any) -> TerminalInfo:
        """From a map in a body: what is of another kind, or out of its range, is None."""
        if not isinstance(value, Mapping):
            return cls()
        found: dict[str, Any] = {}
        for name, read in _READERS.items():
            given = value.get(name)
            if given is None:
                continue
            if isinstance(given, str):
                try:
                    found[name] = read(given)
                except ValueError:
                    continue
            elif read is not _word and isinstance(given, int | float) and not isinstance(given, bool):
                if name == "process_time":
                    try:
                        found[name] = float(given)
                    except OverflowError:  # a whole number of more than 308 digits
                        continue
                elif isinstance(given, int) and 0 <= given <= _LIMITS[name]:
                    found[name] = given
        return cls.of(found)


def _text(value: Any) -> str:
    return printable(value) if isinstance(value, str) else str(value)
