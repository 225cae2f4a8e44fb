"""What an attribute's text may be: a small type for each kind of value, which reads it or says what is right.

`read` returns the value or raises ValueError whose text goes to the author as it is. `grammar` uses these in
its tables. Left out: rules between two attributes, which are in `load` and `module`.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any, Protocol

from bakemesh.protocol import names
from bakemesh.protocol.builder.spec.problems import listed, quoted, suggestion
from bakemesh.protocol.errors import NameRefused

_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,40})?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PATTERN_LENGTH = 512


class Type(Protocol):
    """What a text may be."""

    def read(self, text: str) -> Any:
        """The value of `text`. Raises ValueError, which says what would be right."""


@dataclass(frozen=True, slots=True)
class Text:
    """Any text; with `filled`, not an empty one."""

    filled: bool = False

    def read(self, text: str) -> str:
        if self.filled and not text:
            raise ValueError("must not be empty")
        return text


@dataclass(frozen=True, slots=True)
class Name:
    """A token of the kind `what` (`names.LIMITS`)."""

    what: str

    def read(self, text: str) -> str:
        try:
            return names.check(self.what, text)
        except NameRefused as error:
            raise ValueError(f"{quoted(text)} {error.reason}") from None


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`, of `unit`."""

    low: int
    high: int
    unit: str = ""

    def read(self, text: str) -> int:
        unit = f" of {self.unit}" if self.unit else ""
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"must be a whole number{unit}, not {quoted(text)}")
        value = int(text)
        if not self.low <= value <= self.high:
            raise ValueError(f"is {value:,}; must be a number{unit} from {self.low:,} to {self.high:,}")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A decimal number above 0, at most `high`."""

    high: float

    def read(self, text: str) -> float:
        if not _NUMBER.fullmatch(text) or not 0 < float(text) <= self.high:
            raise ValueError(f"must be a number above 0 and up to {self.high:g}, not {quoted(text)}")
        return float(text)


@dataclass(frozen=True, slots=True)
class YesNo:
    """`yes` or `no`."""

    def read(self, text: str) -> bool:
        if text not in ("yes", "no"):
            raise ValueError(f"must be 'yes' or 'no', not {quoted(text)}")
        return text == "yes"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words; with `fold`, in any case."""

    words: tuple[str, ...]
    fold: bool = False
    hint: str = ""

    def read(self, text: str) -> str:
        for word in self.words:
            if text == word or (self.fold and text.lower() == word.lower()):
                return word
        near = suggestion(text, self.words)
        raise ValueError(f"must be one of {listed(self.words)}, not {quoted(text)}{near or self.hint}")


@dataclass(frozen=True, slots=True)
class ExitCodes:
    """Exit codes, 0 to 255, divided by blanks or commas."""

    def read(self, text: str) -> frozenset[int]:
        words = text.replace(",", " ").split()
        if not words:
            raise ValueError("must list at least one exit code, as in '0 1'")
        for word in words:
            if not _WHOLE.fullmatch(word) or int(word) > 255:
                raise ValueError(f"must list exit codes from 0 to 255, as in '0 1'; {quoted(word)} is none")
        return frozenset(map(int, words))


@dataclass(frozen=True, slots=True)
class Percent:
    """A regular expression with exactly one group: the percent in a line of output."""

    def read(self, text: str) -> str:
        if len(text) > _PATTERN_LENGTH:
            raise ValueError(f"is {len(text):,} characters long; at most {_PATTERN_LENGTH} are allowed")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                groups = re.compile(text).groups
        except (re.error, OverflowError, RecursionError, Warning) as error:
            raise ValueError(f"{quoted(text)} is no regular expression: {error}") from None
        if groups != 1:
            raise ValueError(
                f"must have exactly one group, the percent, as in '([0-9]+)%'; {quoted(text)} has {groups}"
                " ('(?:…)' groups without counting)"
            )
        return text


@dataclass(frozen=True, slots=True)
class Variable:
    """The name of an environment variable."""

    def read(self, text: str) -> str:
        if not _VARIABLE.fullmatch(text):
            raise ValueError(
                f"{quoted(text)} is no variable name: letters, digits and '_', not a digit first"
            )
        return text


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message type, `Robot.Button.Pressed`; with `wildcards`, a segment may be `*`."""

    wildcards: bool = False

    def read(self, text: str) -> str:
        for segment in text.split("."):
            if segment == "*" and self.wildcards:
                continue
            if not names.is_valid("segment", segment):
                allowed = ", or '*' as a word" if self.wildcards else ""
                raise ValueError(
                    f"{quoted(text)} is no type: words of letters, digits, '_', '-' and '.' between{allowed}"
                )
        return text


@dataclass(frozen=True, slots=True)
class Types:
    """Message types without wildcards, divided by blanks or commas."""

    def read(self, text: str) -> tuple[str, ...]:
        one = MessageType()
        return tuple(dict.fromkeys(one.read(word) for word in text.replace(",", " ").split()))


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the kind `what`, divided by commas or blanks."""

    what: str

    def read(self, text: str) -> tuple[str, ...]:
        one = Name(self.what)
        return tuple(dict.fromkeys(one.read(word) for word in text.replace(",", " ").split()))
