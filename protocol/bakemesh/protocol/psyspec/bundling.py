"""One text out of a PsySpec's files: what it includes, and the scripts of its modules, put in.

Paths are relative to the file that names them. A script that several modules name travels once. The text
says itself from which file and line each part comes (`document.origin`), so that problems name the author's
files. Bounds: how many files, how deep, how large; a file that includes itself is said with the way round.
Left out: reading, which is the caller's `read`; absolute scripts, which are files of the node.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from bakemesh.protocol.builder.spec import document, elements
from bakemesh.protocol.builder.spec.document import Node, opening, origin, written
from bakemesh.protocol.builder.spec.problems import MOST, Collector, EnoughProblems, Line, Problem, quoted
from bakemesh.protocol.psyspec import grammar
from bakemesh.protocol.psyspec.grammar import LIMITS
from bakemesh.protocol.psyspec.load import MODULES, load_psyspec, read_tree
from bakemesh.protocol.psyspec.model import PsySpec, PsySpecRefused
from bakemesh.protocol.psyspec.variables import Variables

MOST_FILES: Final = 200
DEEPEST: Final = 8
_ROOTS: Final = ("psyspec", "include")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Read = Callable[[str], str]


def bundle(text: str, *, file: str, read: Read) -> str:
    """`text`, the PsySpec in `file`, with its files put in: one that `load_psyspec` takes from anywhere.

    `read(path)` gives a file's text; OSError and ValueError (no UTF-8) become problems. Raises
    PsySpecRefused.
    """
    bundling = _Bundling(read, file)
    whole = bundling.whole(text)
    if bundling.problems.problems:
        raise PsySpecRefused(bundling.problems.problems)
    return whole


def read_psyspec(text: str, *, file: str, read: Read) -> PsySpec:
    """`bundle` and `load_psyspec` in one: the problems of both at once. Raises PsySpecRefused."""
    bundling = _Bundling(read, file)
    whole = bundling.whole(text)
    said = bundling.problems.problems
    if bundling.parts_missing:
        raise PsySpecRefused(said)  # what else seems wrong may be only for want of them
    try:
        found = load_psyspec(whole, file=file)
    except PsySpecRefused as error:
        raise PsySpecRefused([*said, *error.problems][:MOST], error.code) from None
    if said:
        raise PsySpecRefused(said)
    return found


class _Bundling:
    """One bundling."""

    def __init__(self, read: Read, file: str) -> None:
        self._read = read
        self.file = file
        self.problems = Collector(file)
        self.parts_missing = False
        self._files = 0

    def whole(self, text: str) -> str:
        """The text; what is wrong is in `problems`. Raises PsySpecRefused where `text` cannot be read."""
        root = self._tree(text, self.file, self.problems)
        try:
            root.children = self._included(root, (self._path(self.file),))
            self._scripts(root)
        except EnoughProblems:
            self.parts_missing = True
        return _Writer().whole(root)

    def _tree(self, text: str, file: str, problems: Collector) -> Node:
        root = read_tree(text.removeprefix("\ufeff"), problems)
        _mark(root, file)
        return root

    def _path(self, file: str) -> str:
        return posixpath.normpath(file)

    def _beside(self, line: int, file: str) -> str:
        """The path of `file`, as it is named in `line`."""
        namer = line.file if isinstance(line, Line) else self.file
        return self._path(posixpath.join(posixpath.dirname(namer), file))

    def _included(self, root: Node, chain: tuple[str, ...]) -> list[Node]:
        """The children of `root`, with those of included files in the places of the includes."""
        found: list[Node] = []
        for child in root.children:
            if child.name != grammar.INCLUDE.name:
                found.append(child)
                continue
            before = len(self.problems.problems)
            inner = self._include(child, chain)
            if inner is None or len(self.problems.problems) > before:
                self.parts_missing = True
            found += inner or []
        return found

    def _include(self, node: Node, chain: tuple[str, ...]) -> list[Node] | None:
        problems = self.problems
        values = elements.attributes(node, grammar.INCLUDE, problems)
        elements.text(node, grammar.INCLUDE, problems)
        elements.children(node, grammar.INCLUDE, problems)
        if values["file"] is None:
            return None
        path = self._beside(node.line, values["file"])
        if path in chain:
            way = " → ".join([*chain[chain.index(path) :], path])
            problems.add(node.line, node.name, "file", f"{way}: a file cannot include itself")
            return None
        if len(chain) > DEEPEST:
            problems.add(node.line, node.name, "file", f"includes are nested deeper than {DEEPEST}")
            return None
        text = self._text(node, "file", path)
        if text is None:
            return None
        own = Collector(path)
        try:
            root = self._tree(text, path, own)
        except PsySpecRefused as error:
            self._take(error.problems)
            return None
        if root.name not in _ROOTS:
            problems.add(root.line, root.name, None, "an included file's root is <psySpec> or <include>")
            return None
        elements.text(root, grammar.INCLUDED, problems)
        return self._included(root, (*chain, path))

    def _take(self, said: tuple[Problem, ...]) -> None:
        for problem in said:
            self.problems.add(
                Line(problem.line, problem.file), problem.element, problem.attribute, problem.message
            )

    def _text(self, node: Node, attribute: str, path: str) -> str | None:
        """A file's text; None where it cannot be had, which is said."""
        self._files += 1
        if self._files > MOST_FILES:
            self.problems.add(node.line, node.name, attribute, f"more than {MOST_FILES} files")
            raise EnoughProblems
        try:
            text = self._read(path)
            if len(text) <= LIMITS.xml_bytes:
                return text.removeprefix("\ufeff")
            said = (
                f"{quoted(path)} is {len(text):,} characters long; at most {LIMITS.xml_bytes:,} are allowed"
            )
        except OSError as error:
            said = f"{quoted(path)} cannot be read: {error.strerror or type(error).__name__}"
        except ValueError as error:
            said = f"{quoted(path)} is no UTF-8 text: {error}"
        self.problems.add(node.line, node.name, attribute, said)
        return None

    def _scripts(self, root: Node) -> None:
        """Puts the sources of relative scripts in; a script that was put in already is shared."""
        variables = Variables(Collector(self.file, most=1 << 30))  # what is wrong with them is load's to say
        with suppress(EnoughProblems):
            variables.define(root.children)
        holders: dict[str, str] = {}
        for module in root.children:
            if module.name in MODULES:
                for crank in module.children:
                    if crank.name == "crank" and "script" in crank.attributes:
                        self._script(crank, module.attributes.get("name"), variables, holders)

    def _script(self, crank: Node, module: str | None, variables: Variables, holders: dict[str, str]) -> None:
        if "source-of" in crank.attributes or "".join(crank.texts()).strip():
            return
        try:
            script = variables.put_in(crank, "script", crank.attributes["script"])
        except EnoughProblems:
            return  # said when it is loaded
        if not script or script.startswith("/"):
            return
        path = self._beside(crank.line, script)
        if path in holders:
            crank.attributes["source-of"] = holders[path]
            return
        crank.text = "# missing"
        if (source := self._text(crank, "script", path)) is None:
            return
        if said := _not_a_script(source):
            self.problems.add(crank.line, crank.name, "script", f"{quoted(path)} {said}")
            return
        crank.text = source
        if module:
            holders[path] = module


def _not_a_script(source: str) -> str | None:
    if not source or source.isspace():
        return "is empty"
    if found := _NOT_XML.search(source):
        line = source.count("\n", 0, found.start()) + 1
        return (
            f"holds U+{ord(found.group()):04X} in line {line}, which XML cannot carry; write it as an escape"
            f" ({quoted(found.group())}), or name the script by an absolute path on the node"
        )
    return None


def _mark(node: Node, file: str) -> None:
    """Every node's line gets its file."""
    if not isinstance(node.line, Line):
        node.line = Line(node.line, file)
    for child in node.children:
        _mark(child, file)


class _Writer:
    """A tree as text that says where its parts come from."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._line = 1
        self._file: str | None = None
        self._shift = 0

    def whole(self, root: Node) -> str:
        """The text of `root`."""
        self._element(root, depth=1)
        return "".join(self._parts)

    def _element(self, node: Node, depth: int) -> None:
        if depth > 3:
            self._put(document.write(node))
            return
        self._at(node.line)
        tag = opening(node.name, node.attributes)
        if not node.children and not node.text:
            self._put(f"{tag}/>")
            return
        self._put(f"{tag}>")
        self._put(written(node.text))
        for child in node.children:
            self._element(child, depth + 1)
            self._put(written(child.tail))
        self._put(f"</{node.name}>")

    def _at(self, line: int) -> None:
        file = line.file if isinstance(line, Line) else ""
        if (self._file, self._line + self._shift) != (file, line):
            self._put(origin(line, file))
            self._file, self._shift = file, line - self._line

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._line += text.count("\n")
