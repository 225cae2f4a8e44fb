"""Chats as prompts: the model's own template (jinja), which came with a file that somebody made.

Guarantees: a template reaches nothing of Python (jinja's sandbox; of a text only the methods that `bounds`
lists), a rendering makes at most so many steps and so long a text, and whatever goes wrong is a TextRefused.
Left out: tools and documents (the protocol has turns of role and content).
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from bakemesh.protocol.inference.errors import Code
from bakemesh.synapse.models.bounds import Bounded, Exceeded, counted
from bakemesh.synapse.models.errors import TextRefused

LONGEST_TEMPLATE = 1 << 18
_DATE = re.compile(r"(?:[^%]|%-?[A-Za-z%])*")
# What a template's own mistakes come as: it is a program that somebody else wrote.
_FAILURES = (
    TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError,
    MemoryError,
)  # fmt: skip


class _Refused(Exception):
    """Raised by a template that says itself that it does not take the chat."""


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what trainers learn from; here it is its content."""

    tags = {"generation"}  # noqa: RUF012 - as Extension has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """See Extension."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template. Raises TextRefused (capability_absent) where it is none that can be used."""

    def __init__(self, source: str, texts: Mapping[str, str] | None = None) -> None:
        if len(source) > LONGEST_TEMPLATE:
            raise _absent(f"it has {len(source)} characters; {LONGEST_TEMPLATE} are read")
        self._environment = Bounded(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
        )
        self._environment.filters["tojson"] = _tojson
        self._environment.globals.update(raise_exception=_raise, strftime_now=_now)
        self._texts = dict(texts or {})
        try:
            tree = counted(self._environment.parse(source))
            self._template = self._environment.from_string(tree)
        except _FAILURES as error:
            raise _absent(str(error)) from error

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt that the model is to go on from. Raises TextRefused."""
        turns = [_turn(number, dict(each)) for number, each in enumerate(messages)]
        try:
            with self._environment.budget() as budget:
                pieces = []
                for piece in self._template.generate(
                    messages=turns, add_generation_prompt=True, **self._texts
                ):
                    budget.said(piece)
                    pieces.append(piece)
        except _Refused as refused:
            raise TextRefused(f"the model's template does not take this chat: {refused}") from None
        except Exceeded as exceeded:
            raise TextRefused(f"the model's template goes on for ever: {exceeded}") from None
        except _FAILURES as error:
            raise TextRefused(f"the model's template fails on this chat: {error}"[:1000]) from error
        return "".join(pieces)


def problem_of(source: str, texts: Mapping[str, str]) -> str | None:
    """Why the template cannot render the simplest chat; None where it can."""
    try:
        ChatTemplate(source, texts).render([{"role": "user", "content": "Hello"}])
    except TextRefused as refused:
        return refused.message
    return None


def _turn(number: int, found: dict[str, Any]) -> dict[str, Any]:
    role, content = found.get("role"), found.get("content")
    if not isinstance(role, str) or not isinstance(content, str | list):
        raise TextRefused(f"turn {number} of the chat: role (a text) and content are meant")
    return found


def _absent(why: str) -> TextRefused:
    return TextRefused(f"the model's chat template cannot be used: {why[:500]}", Code.CAPABILITY_ABSENT)


def _raise(message: object) -> None:
    raise _Refused(str(message)[:500])


def _now(pattern: str) -> str:
    # A width ("%9999999d") would be obeyed.
    if len(pattern) > 100 or _DATE.fullmatch(pattern) is None:
        raise ValueError(f"strftime_now({pattern!r:.120}): letters alone are meant behind each %")
    return datetime.datetime.now().strftime(pattern)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """JSON as the libraries that templates are written for make it: no HTML escapes."""
    if options.keys() - {"separators", "sort_keys"} or (indent is not None and not 0 <= indent <= 16):
        raise ValueError("tojson takes ensure_ascii, separators, sort_keys and an indent up to 16")
    pieces, length = [], 0
    for piece in json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, **options).iterencode(value):
        length += max(len(piece), 64)  # a list in a list in a list has many short pieces
        Bounded.fits(length)
        pieces.append(piece)
    return "".join(pieces)
