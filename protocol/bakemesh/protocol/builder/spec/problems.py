"""What is wrong with a spec, said so that its author can mend it, and all of it at once.

A Problem names file, line, element and attribute as far as they are known and says what would be right. A
Collector gathers them up to a bound and then stops the reading: a hostile spec costs no more than an honest
one. Texts are cut so that a hundred problems always fit into one Result. Left out: warnings; whatever a
recipe's Collector holds refuses it. (A PsySpec's are beside its Collector.)
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.errors import ProtocolError

MOST = 100  # problems in one refusal
MESSAGE_BYTES = 420  # 100 of these and their names stay under the 64 KiB that a Result may give to problems
NAME_BYTES = 64


class Line(int):
    """A line that knows its file, where a text was put together from several."""

    file: str

    def __new__(cls, number: int, file: str) -> Self:
        line = super().__new__(cls, number)
        line.file = file
        return line


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `line` counts from 1; `element`, `attribute` are None where there is none."""

    file: str
    line: int
    element: str | None
    attribute: str | None
    message: str

    def __str__(self) -> str:
        where = f"<{self.element}>" if self.element else ""
        if self.attribute:
            where = f"{where} {self.attribute}=".strip()
        return f"{self.file}:{self.line}: {where}: {self.message}" if where else self.located

    @property
    def located(self) -> str:
        """File, line and message alone."""
        return f"{self.file}:{self.line}: {self.message}"

    def entry(self) -> dict[str, str | int]:
        """As an item of a Result's `problems`; what is None is left out."""
        found: dict[str, str | int] = {"line": self.line, "message": self.message}
        if self.element:
            found["element"] = self.element
        if self.attribute:
            found["attribute"] = self.attribute
        return found


class RecipeRefused(ProtocolError):
    """Raised when a recipe cannot be baked as written: `problems`, at least one, and the Result's `code`."""

    def __init__(self, problems: Iterable[Problem], code: Code) -> None:
        self.problems = tuple(problems)
        self.code: Code = code
        super().__init__("\n".join(map(str, self.problems)))


class EnoughProblems(Exception):
    """Raised when a Collector is full, so that reading on would tell nobody anything."""


def problem(file: str, line: int, element: str | None, attribute: str | None, message: str) -> Problem:
    """A problem, its texts cut. `file`: where the line does not know its own."""
    return Problem(
        line.file if isinstance(line, Line) else file,
        int(line),
        clip(element, NAME_BYTES) if element else None,
        clip(attribute, NAME_BYTES) if attribute else None,
        clip(message, MESSAGE_BYTES),
    )


class Collector:
    """Gathers problems, at most `most`. `file`: where a line does not know its own."""

    def __init__(self, file: str, most: int = MOST) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._most = most

    def add(self, line: int, element: str | None, attribute: str | None, message: str) -> None:
        """Takes a problem. Raises EnoughProblems when that was the last one there is room for."""
        self.problems.append(problem(self.file, line, element, attribute, message))
        if len(self.problems) >= self._most:
            raise EnoughProblems


def clip(text: str, most: int) -> str:
    """`text` in at most `most` bytes of UTF-8, with an ellipsis where something was cut off."""
    if len(text) * 4 <= most:
        return text
    encoded = text[: most + 1].encode("utf-8", "replace")
    if len(encoded) <= most and len(text) <= most:
        return text
    return encoded[: most - 3].decode("utf-8", "ignore") + "…"


def quoted(value: str, most: int = 60) -> str:
    """A value as it may stand in a message: quoted, without control characters, cut."""
    shown = value if len(value) <= most else value[:most] + "…"
    return "'" + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown) + "'"


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'retryable'?` where a known name is near, else nothing."""
    if len(name) > NAME_BYTES:
        return ""
    lowered = {candidate.lower(): candidate for candidate in known}
    name = name.lower()
    near = difflib.get_close_matches(name, _likely(name, lowered), n=1, cutoff=0.6)
    return f"; did you mean {quoted(lowered[near[0]])}?" if near else ""


def _likely(name: str, known: Iterable[str]) -> list[str]:
    """The few of many names that are worth a comparison, which costs the product of both lengths."""
    candidates = list(known)
    most = 32 if len(name) <= 24 else 4
    if len(candidates) <= most:
        return candidates
    near = (candidate for candidate in candidates if abs(len(candidate) - len(name)) <= 3)
    return heapq.nlargest(most, near, key=lambda candidate: _in_common(name, candidate))


def _in_common(one: str, other: str) -> int:
    """How many letters two names share at their begin and at their end."""
    return _begin(one, other) + _begin(one[::-1], other[::-1])


def _begin(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def listed(names: Iterable[str]) -> str:
    """`a, b, c`, in the order given."""
    return ", ".join(names)
