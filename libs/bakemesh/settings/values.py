"""How text (or a TOML value) becomes a setting's value: one reader a type, pure.

A reader takes a str, or what TOML gives (int, float, bool, list), and returns the typed value. It raises
ValueError whose text says what would be right; who calls it adds the setting and the origin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bakemesh.protocol import names
from bakemesh.protocol.errors import NameRefused
from bakemesh.protocol.numerals import whole

Reader = Callable[[object], Any]

_SIZE = re.compile(r"(\d+)\s*(B|[KMGT]i?B?)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_YES = frozenset({"yes", "true", "on", "1"})
_NO = frozenset({"no", "false", "off", "0"})
_SCHEMES = ("nats", "tls", "ws", "wss")


@dataclass(frozen=True, slots=True)
class Refused:
    """One value that was not taken: which setting, from where, and what would be right."""

    setting: str
    origin: str
    reason: str

    def __str__(self) -> str:
        return f"{self.setting} (from {self.origin}): {self.reason}"


class SettingRefused(Exception):
    """Raised when settings hold values that cannot be taken; `problems` lists all of them."""

    def __init__(self, problems: Sequence[Refused]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class NodeName:
    """`NAME[=ID]` as it was given; `id` None: the state folder's, else the name."""

    name: str
    id: str | None = None

    def __str__(self) -> str:
        return self.name if self.id is None else f"{self.name}={self.id}"


def _text(value: object, wanted: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected {wanted}, not {value!r}")
    text = value.strip()
    if not text:
        raise ValueError(f"is empty; expected {wanted}")
    return text


def token(kind: str) -> Reader:
    """A name of the kind `kind` (bakemesh.protocol.names)."""

    def read(value: object) -> str:
        try:
            return names.check(kind, _text(value, "a name"))
        except NameRefused as error:
            raise ValueError(f"{error.value!r} {error.reason}") from None

    return read


def token_list(kind: str) -> Reader:
    """Names, as a TOML list or separated by commas."""
    one = token(kind)

    def read(value: object) -> tuple[str, ...]:
        return tuple(one(part) for part in _parts(value))

    return read


def _parts(value: object) -> list[object]:
    if isinstance(value, str):
        return [part for part in (piece.strip() for piece in value.split(",")) if part]
    if isinstance(value, list | tuple):
        return [part for item in value for part in (_parts(item) if isinstance(item, str) else [item])]
    raise ValueError(f"expected a list, or names separated by commas, not {value!r}")


def node(value: object) -> NodeName:
    """`NAME` or `NAME=ID`."""
    name, equals, id_ = _text(value, "NAME or NAME=ID").partition("=")
    read_name = token("Node")(name)
    return NodeName(read_name, token("NodeID")(id_) if equals else None)


def urls(value: object) -> tuple[str, ...]:
    """NATS server URLs, separated by commas or a list; `host:port` is taken as `nats://host:port`."""
    found = tuple(url(part) for part in _parts(value))
    if not found:
        raise ValueError("is empty; expected a URL such as nats://127.0.0.1:4222")
    return found


def url(value: object) -> str:
    """One NATS server URL."""
    text = _text(value, "a URL such as nats://127.0.0.1:4222")
    if "://" not in text:
        text = f"nats://{text}"
    try:
        parsed = urlsplit(text)
        port = parsed.port
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; expected a URL such as nats://127.0.0.1:4222") from None
    if parsed.scheme not in _SCHEMES:
        known = ", ".join(_SCHEMES)
        raise ValueError(f"{text!r}: unknown scheme {parsed.scheme!r}; expected one of {known}")
    if not parsed.hostname:
        raise ValueError(f"{text!r} names no host; expected a URL such as nats://127.0.0.1:4222")
    if port is None and parsed.scheme in ("nats", "tls"):
        text = f"{text.rstrip('/')}:4222"
    return text


def listen(value: object) -> tuple[str, int | None]:
    """`HOST` or `HOST:PORT` (IPv6 in brackets); port None: 4222 if it is free, 0: any free one."""
    text = _text(value, "HOST or HOST:PORT")
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError(f"{text!r} names no host; expected HOST or HOST:PORT")
    if not port:
        return host, None
    number = whole(port)
    if number is None or number > 65535:
        raise ValueError(f"port {port!r} is no number from 0 to 65535")
    return host, number


def path(value: object) -> Path:
    """A path; `~` is the home folder."""
    try:
        return Path(_text(value, "a path")).expanduser()
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def integer(least: int, most: int | None = None) -> Reader:
    """A whole number within bounds."""
    bounds = f"at least {least}" if most is None else f"from {least} to {most}"

    def read(value: object) -> int:
        if isinstance(value, str):
            text = value.strip()
            size = whole(text.removeprefix("-"))
            value = value if size is None else -size if text.startswith("-") else size
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{value!r} is no whole number; expected one {bounds}")
        if value < least or (most is not None and value > most):
            raise ValueError(f"{value} is out of range; expected {bounds}")
        return value

    return read


def size(least: int) -> Reader:
    """Bytes: a whole number, or one with a unit (`512MiB`, `10G`: powers of 1024)."""

    def read(value: object) -> int:
        found = value
        if isinstance(value, str):
            match = _SIZE.fullmatch(value.strip())
            if match is None:
                raise ValueError(
                    f"{value!r} is no size; expected bytes, or a number with KiB, MiB, GiB or TiB"
                )
            unit = (match[2] or "").lower()
            found = int(match[1]) * _UNITS["" if unit in ("", "b") else unit[0]]
        if not isinstance(found, int) or isinstance(found, bool):
            raise ValueError(f"{value!r} is no size; expected bytes, or a number with KiB, MiB, GiB or TiB")
        if found < least:
            raise ValueError(f"{found} bytes is too small; at least {least}")
        return found

    return read


def rate(value: object) -> float:
    """So many a second: `200` or `200/s`."""
    found: object = value
    if isinstance(value, str):
        try:
            found = float(value.strip().removesuffix("/s"))
        except ValueError:
            found = None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < 1e9:
        raise ValueError(f"{value!r} is no rate; expected a number above 0, such as 200 or 200/s")
    return float(found)


def one_of(*choices: str) -> Reader:
    """One of a few words."""

    def read(value: object) -> str:
        text = _text(value, "one of " + ", ".join(choices)).lower()
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read


def yes_no(value: object) -> bool:
    """yes or no (true, false, on, off, 1, 0)."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _YES:
        return True
    if text in _NO:
        return False
    raise ValueError(f"{value!r} is neither yes nor no")


def yes_no_auto(value: object) -> bool | None:
    """yes, no or auto (None)."""
    if isinstance(value, str) and value.strip().lower() == "auto":
        return None
    try:
        return yes_no(value)
    except ValueError:
        raise ValueError(f"{value!r} is none of yes, no, auto") from None
