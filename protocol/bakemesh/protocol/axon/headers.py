"""Headers as they came, made one plain map; and the required ones read from it.

Guarantees of `normal`: lower case; for the names of this protocol `-` reads as `_` (a proxy may not let
underscores through); nothing stands there twice in any spelling; no value holds a control character. So no
two readers of the map can see two different requests. Source: protocol/axon-v1.md, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from bakemesh.protocol.axon import keys
from bakemesh.protocol.axon.errors import InvalidHeaderValue, MissingHeader
from bakemesh.protocol.axon.terminal import U64, number, unsigned

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HYPHENED = tuple(key.replace("_", "-") for key in keys.TOP_LEVEL)
_SINGLE = frozenset({"content-length", "content-type", "content-encoding", "authorization", "host"})


def normal(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a request as a map. Raises InvalidHeaderValue."""
    found: dict[str, str] = {}
    for raw_key, raw_value in raw:
        key = _name(raw_key) if len(raw_key) <= _LONGEST_KEPT else _spelled(raw_key)
        value = raw_value.decode("latin-1").strip(" \t")
        if _CONTROL.search(value):
            raise InvalidHeaderValue(key, "it holds a control character")
        if key not in found:
            found[key] = value
        elif _counts_once(key):
            raise InvalidHeaderValue(key, "it stands there twice")
    return found


def _spelled(raw_key: bytes) -> str:
    key = raw_key.decode("latin-1").lower()
    if "-" in key and (key.startswith(("bt-", "bt_")) or key in _HYPHENED):
        key = key.replace("-", "_")
    return key


_LONGEST_KEPT = 64
_name = lru_cache(maxsize=1024)(_spelled)  # all requests have the same few


def _counts_once(key: str) -> bool:
    return key.startswith((keys.PREFIX, keys.BTAUTH_PREFIX)) or key in keys.TOP_LEVEL or key in _SINGLE


def parse_header(headers: Mapping[str, str], key: str) -> str:
    """A required header. Raises MissingHeader."""
    value = headers.get(key)
    if value is None:
        raise MissingHeader(key)
    return value


def parse_header_f64(headers: Mapping[str, str], key: str) -> float:
    """A required floating-point header. Raises MissingHeader, InvalidHeaderValue."""
    try:
        return number(parse_header(headers, key))
    except ValueError as error:
        raise InvalidHeaderValue(key, error) from None


def parse_header_u64(headers: Mapping[str, str], key: str) -> int:
    """A required whole number. Raises MissingHeader, InvalidHeaderValue."""
    try:
        return unsigned(parse_header(headers, key), U64)
    except ValueError as error:
        raise InvalidHeaderValue(key, error) from None
