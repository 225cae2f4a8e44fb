"""A jinja environment whose templates end, and do not fill the memory.

jinja's sandbox keeps a template away from Python; it does not keep it from a loop in a loop in a loop, nor
from a text that doubles thirty times. Here each turn of a loop and each macro is a step of a budget, and
whatever makes a text or a number longer looks at its size first.
"""

from __future__ import annotations

import functools
import string
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from bakemesh.protocol.numerals import whole

MOST_STEPS = 100_000
MOST_TEXT = 1 << 24  # characters; a chat's texts are in it
_MOST_ITEMS = 100_000
_TEXT_METHODS = """
capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower
isnumeric isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace
rfind rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title upper
"""
_FILTERS = """
abs attr batch capitalize count d default dictsort e escape first float groupby indent int items
join last length list lower map max min reject rejectattr replace reverse round safe select
selectattr slice sort string sum title tojson trim unique upper urlencode wordcount
"""
TEXT_METHODS = frozenset(_TEXT_METHODS.split())
ALLOWED_FILTERS = frozenset(_FILTERS.split())


class Exceeded(Exception):
    """Raised when a rendering makes more steps, or a longer text, than any chat needs."""


class Budget:
    """Of one rendering."""

    def __init__(self) -> None:
        self.steps = self.length = 0

    def step(self) -> None:
        """One more. Raises Exceeded."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Exceeded(f"more than {MOST_STEPS} steps")

    def said(self, piece: str) -> None:
        """A piece of the output. Raises Exceeded."""
        self.length += len(piece)
        Bounded.fits(self.length)


class Bounded(ImmutableSandboxedEnvironment):
    """See the module. Rendering has to be done within `budget`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_plain, **options)
        self._running = threading.local()
        self.filters = {name: each for name, each in FILTERS.items() if name in ALLOWED_FILTERS}
        self.filters.update(indent=_indent, join=_join, replace=_replace, string=_plain_text)

    @contextmanager
    def budget(self) -> Iterator[Budget]:
        """For one rendering, in this thread."""
        self._running.budget = found = Budget()
        try:
            yield found
        finally:
            del self._running.budget

    # -- called by compiled templates

    def step(self) -> str:
        """Before each turn of a loop and each run of a macro."""
        self._running.budget.step()
        return ""

    def joined(self, *parts: Any) -> str:
        """The operator `~`."""
        said = [str(_plain(part)) for part in parts]
        self.fits(sum(map(len, said)))
        return "".join(said)

    @staticmethod
    def fits(length: int) -> None:
        """Raises Exceeded for a text that is longer than any chat."""
        if length > MOST_TEXT:
            raise Exceeded(f"a text of more than {MOST_TEXT} characters")

    # -- jinja's own hooks

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """See SandboxedEnvironment."""
        if operator == "%" and not isinstance(left, int | float):
            raise SecurityError("a text is not formatted with %")
        if operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            _room(left, len(left) + len(right))
        if operator == "*" and isinstance(left, int) and not isinstance(right, int | float):
            left, right = right, left
        if operator == "*" and isinstance(left, str | list | tuple):
            _room(left, len(left) * max(int(right), 0))
        if operator == "**" and not (abs(left) <= 1 << 32 and 0 <= right <= 64):
            raise Exceeded("a number that is too large")
        found = super().call_binop(context, operator, left, right)
        if isinstance(found, int) and found.bit_length() > 4096:
            raise Exceeded("a number that is too large")
        return found

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """See SandboxedEnvironment."""
        text = getattr(value, "__self__", None)
        if not isinstance(text, str) or getattr(value, "__name__", "") not in ("format", "format_map"):
            return None
        return functools.partial(_format, text)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """See SandboxedEnvironment."""
        if isinstance(obj, str) and attr not in TEXT_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """See SandboxedEnvironment, which names its arguments so."""
        text = getattr(__obj, "__self__", None)
        if isinstance(text, str):
            if __obj.__name__ == "replace":
                return _replace(text, *args)
            if __obj.__name__ == "join":
                return _join(args[0], text)
        return super().call(__context, __obj, *args, **kwargs)


class _Counted(NodeTransformer):
    """Puts a step into each loop and macro, and a look at the size into each `~`."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _step(node))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _step(node))
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.CallBlock:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _step(node))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        return _own(node, "joined", node.nodes)


def counted(tree: nodes.Template) -> nodes.Template:
    """The same template, with its steps counted."""
    found = _Counted().visit(tree)
    assert isinstance(found, nodes.Template)
    return found


def _own(node: nodes.Node, name: str, args: list[nodes.Expr]) -> nodes.Call:
    method = nodes.EnvironmentAttribute(name, lineno=node.lineno)
    call = nodes.Call(method, args, [], None, None, lineno=node.lineno)
    assert node.environment is not None
    call.set_environment(node.environment)
    return call


def _step(node: nodes.Node) -> nodes.ExprStmt:
    return nodes.ExprStmt(_own(node, "step", []), lineno=node.lineno)


def _room(kind: Any, length: int) -> None:
    if isinstance(kind, str):
        Bounded.fits(length)
    elif length > _MOST_ITEMS:
        raise Exceeded(f"a list of more than {_MOST_ITEMS} items")


def _plain(value: Any) -> Any:
    """What may stand in the output as it is: a list in a list in a list would be written out."""
    if isinstance(value, list | tuple | dict | set | frozenset):
        raise SecurityError("a list or a map is written with tojson")
    return value


def _plain_text(value: Any) -> str:
    return str(_plain(value))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    text, old, new = str(text), str(old), str(new)
    found = len(text) + 1 if not old else text.count(old)
    found = min(found, count) if count is not None and count >= 0 else found
    Bounded.fits(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new, -1 if count is None else count)


def _format(text: str, *args: Any, **kwargs: Any) -> str:
    """Fields by name or number alone: no attribute is reached, and no width obeyed."""
    said, number = [], 0
    for literal, name, shape, conversion in string.Formatter().parse(text):
        said.append(literal)
        if name is None:
            continue
        if (
            shape
            or conversion
            or not (name == "" or name.isidentifier() or whole(name, digits=3) is not None)
        ):
            raise SecurityError(f"the field {{{name}}} of a text is not formatted here")
        if name.isidentifier():
            value = kwargs[name]
        else:
            value = args[int(name or number)]
            number += 1
        said.append(str(_plain(value)))
        Bounded.fits(sum(map(len, said)))
    return "".join(said)


def _join(parts: Iterable[Any], by: str = "", attribute: str | None = None) -> str:
    said, length = [], 0
    for part in parts:
        if attribute is not None:
            part = part[attribute]
        said.append(str(_plain(part)))
        length += len(said[-1]) + len(str(by))
        Bounded.fits(length)
    return str(by).join(said)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    shift = width if isinstance(width, str) else " " * max(min(int(width), 64), 0)
    Bounded.fits(len(text) + (text.count("\n") + 1) * len(shift))
    plain: Callable[..., Any] = FILTERS["indent"]
    return str(plain(text, shift, first, blank))
