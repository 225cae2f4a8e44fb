"""`%Name%` in a PsySpec's attributes: one pass, nothing that was put in is read again.

    <variable name="Models" value="/srv/models"/> … value="%Models%/chat.gguf"

`%%` is a literal `%`; a `%` that begins neither stands for itself. A variable's own value may use those
defined before it. The whole that is put in is bounded, so that variables of variables are no bomb.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from bakemesh.protocol.builder.spec import elements
from bakemesh.protocol.builder.spec.document import Node
from bakemesh.protocol.builder.spec.problems import Collector, EnoughProblems, Line, quoted, suggestion
from bakemesh.protocol.psyspec.grammar import LIMITS, VARIABLE

TOTAL_BYTES: Final = 8 << 20
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"
_PIECE = re.compile(rf"%(?:%|({_NAME})%)")
_WHOLE_NAME = re.compile(_NAME)


@dataclass(slots=True)
class Variables:
    """The variables of a PsySpec. Problems go to `problems` with the line of who uses them."""

    problems: Collector
    values: dict[str, str] = field(default_factory=dict)
    _lines: dict[str, int] = field(default_factory=dict)
    _total: int = 0

    def define(self, nodes: Iterable[Node]) -> None:
        """Takes the `<variable>`s among `nodes`, in their order."""
        for node in nodes:
            if node.name == VARIABLE.name:
                self._define(node)

    def _define(self, node: Node) -> None:
        say = self.problems.add
        values = elements.attributes(node, VARIABLE, self.problems)
        elements.text(node, VARIABLE, self.problems)
        elements.children(node, VARIABLE, self.problems)
        name, value = values["name"], values["value"]
        if name is None:
            return
        if not _WHOLE_NAME.fullmatch(name):
            say(
                node.line, node.name, "name",
                f"{quoted(name)} is no variable's name: a letter or '_', then letters, digits, '_', '.', '-'",
            )  # fmt: skip
        elif name in self.values:
            say(
                node.line,
                node.name,
                "name",
                f"{quoted(name)} is defined in {where(self._lines[name])} already",
            )
        else:
            put_in = self.put_in(node, "value", value or "")
            self.values[name], self._lines[name] = put_in, node.line

    def put_in(self, node: Node, attribute: str, text: str) -> str:
        """`text`, an attribute of `node`, with its variables put in; says those that are not known."""
        if "%" not in text:
            return text
        pieces: list[str] = []
        at = size = 0
        unknown: dict[str, None] = {}
        for found in _PIECE.finditer(text):
            name = found[1]
            value = "%" if name is None else self.values.get(name)
            if value is None:
                unknown[str(name)] = None
                value = ""
            pieces += [text[at : found.start()], value]
            size += len(value)
            at = found.end()
            if size > LIMITS.attribute_bytes:
                break
        for name in unknown:
            near = suggestion(name, self.values)
            self.problems.add(
                node.line, node.name, attribute,
                f"no variable is named {quoted(name)}{near or '; define it, or write %% for a literal %'}",
            )  # fmt: skip
        done = "".join([*pieces, text[at:]])
        self._bound(node, attribute, done)
        return done

    def _bound(self, node: Node, attribute: str, done: str) -> None:
        size = len(done.encode())
        self._total += size
        said = None
        if size > LIMITS.attribute_bytes:
            said = (
                f"is {size:,} bytes long with its variables; at most {LIMITS.attribute_bytes:,} are allowed"
            )
        elif self._total > TOTAL_BYTES:
            said = f"with it the variables put in are over {TOTAL_BYTES:,} bytes in all, more than is allowed"
        if said:
            self.problems.add(node.line, node.name, attribute, said)
            raise EnoughProblems

    def everywhere(self, node: Node) -> None:
        """Puts the variables into every attribute of `node` and of what it holds."""
        for name, text in node.attributes.items():
            node.attributes[name] = self.put_in(node, name, text)
        for child in node.children:
            self.everywhere(child)


def where(line: int) -> str:
    """A line in words, with its file where it knows it."""
    return f"line {int(line)} of {line.file}" if isinstance(line, Line) else f"line {line}"
