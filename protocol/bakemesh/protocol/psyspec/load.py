"""PsySpec text → PsySpec, or PsySpecRefused with everything that is wrong with it.

Guarantees: nothing runs that was not checked whole; every problem up to a hundred is said at once, with its
file and line; what was taken can be brought up where `groups` takes it too: every group's recipe loads. No
text, however hostile, makes it raise anything else or cost more than its bounds. What published specs hold
and this does not is a warning. Left out: files. Includes and scripts are put in before, by `bundling`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from bakemesh.protocol import names
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.spec import document, elements
from bakemesh.protocol.builder.spec.component import ComponentSpec
from bakemesh.protocol.builder.spec.document import Node
from bakemesh.protocol.builder.spec.grammar import PSYSPEC_MODULE, PSYSPEC_SUPERVISOR, PUBLISHED
from bakemesh.protocol.builder.spec.module import Sources, component, read_module
from bakemesh.protocol.builder.spec.problems import (
    MOST,
    Collector,
    EnoughProblems,
    Problem,
    RecipeRefused,
    listed,
    problem,
    quoted,
    suggestion,
)
from bakemesh.protocol.errors import NameRefused
from bakemesh.protocol.psyspec import checks, grammar
from bakemesh.protocol.psyspec.grammar import LIMITS
from bakemesh.protocol.psyspec.model import Cohort, ModuleEntry, NodeEntry, PsySpec, PsySpecRefused
from bakemesh.protocol.psyspec.variables import Variables, where

_REFERENCE = re.compile(r"\$\{(?:node|nodeid|recipeid|(?:param|entry|step):[^}]{1,80})\}")
MODULES = (PSYSPEC_MODULE.name, PSYSPEC_SUPERVISOR.name)


def load_psyspec(text: str, *, file: str = "psyspec") -> PsySpec:
    """The PsySpec in `text`. Raises PsySpecRefused and nothing else, whatever the text.

    `file` goes into problems, where the text does not say itself from which file its lines come.
    """
    problems = Collector(file)
    root = read_tree(text, problems)
    loader = _Loader(file, problems)
    try:
        found = loader.root(root)
    except EnoughProblems:
        found = None
    if found is None or problems.problems:
        raise PsySpecRefused(problems.problems)
    return found


def read_tree(text: str, problems: Collector) -> Node:
    """The root of a PsySpec's text. Raises PsySpecRefused where there is none to read."""
    try:
        root = document.read(text, LIMITS, problems, origins=True)
    except RecipeRefused as error:
        code = Code.TOO_LARGE if error.code is Code.TOO_LARGE else Code.INVALID_PSYSPEC
        raise PsySpecRefused(error.problems, code) from None
    return root


class _Loader:
    """One reading of one document."""

    def __init__(self, file: str, problems: Collector) -> None:
        self.file, self.problems = file, problems
        self.warnings: list[Problem] = []
        self.variables = Variables(problems)
        self.nodes: dict[str, NodeEntry] = {}
        self.lines: dict[tuple[str, str], int] = {}  # (kind, name) → where it was first given
        self.cohorts: list[Cohort] = []
        self.sources = Sources()

    def root(self, root: Node) -> PsySpec | None:
        """The PsySpec of the document's root."""
        say = self.problems.add
        if root.name != "psyspec":
            what = "a recipe" if root.name == "recipe" else "no PsySpec"
            say(root.line, root.name, None, f"this is {what}; a PsySpec's root is <psySpec>")
            return None
        self.variables.define(root.children)
        for name, value in root.attributes.items():
            root.attributes[name] = self.variables.put_in(root, name, value)
        given = elements.attributes(root, grammar.PSYSPEC, self.problems)
        elements.text(root, grammar.PSYSPEC, self.problems)
        cohorts: list[tuple[Node, elements.Values]] = []
        specs: list[checks.Found] = []
        for child in root.children:
            if child.name not in grammar.CHILDREN:
                self._other(child)
                continue
            if child.name == grammar.VARIABLE.name:
                continue  # defined above
            if child.name == grammar.INCLUDE.name:
                say(child.line, child.name, None, "is not put in; the files are put together before (bundle)")
                continue
            self.variables.everywhere(child)
            if child.name in MODULES:
                if len(specs) >= grammar.MOST_MODULES:
                    say(child.line, child.name, None, f"more than {grammar.MOST_MODULES:,} modules")
                    raise EnoughProblems
                specs.append(self._module(child))
            elif child.name == grammar.NODE.name:
                self._node(child)
            else:
                cohorts.append((child, elements.attributes(child, grammar.COHORT, self.problems)))
                elements.text(child, grammar.COHORT, self.problems)
                elements.children(child, grammar.COHORT, self.problems)
        for node, values in cohorts:
            self._cohort(node, values)
        checks.related(specs, self.nodes, self.problems)
        if self.problems.problems:
            return None
        entries = checks.durable(
            tuple(
                ModuleEntry(found.spec, found.node, int(found.line), getattr(found.line, "file", self.file))
                for found in specs
                if found.spec is not None
            ),
            root.line,
            self.problems,
        )
        if self.problems.problems:
            return None
        lines = {found.name: found.line for found in specs if found.name is not None}
        checks.sizes(entries, lines, root.line, self.problems)
        if not entries:
            self._warn(root.line, root.name, None, "holds no <module>; there is nothing to bring up")
        return PsySpec(
            name=given["name"],
            nodes=tuple(self.nodes.values()),
            modules=entries,
            cohorts=tuple(self.cohorts),
            warnings=tuple(self.warnings),
        )

    def _warn(self, line: int, element: str, attribute: str | None, message: str) -> None:
        if len(self.warnings) < MOST:
            self.warnings.append(problem(self.file, line, element, attribute, message))

    def _other(self, node: Node) -> None:
        if node.name in PUBLISHED:
            self._published(node)
            return
        if node.name.startswith("{"):
            said = "namespaces mean nothing here; remove xmlns"
        else:
            near = suggestion(node.name, [*grammar.CHILDREN, *PUBLISHED])
            said = f"unknown element{near or f'; a PsySpec takes {listed(grammar.CHILDREN)}'}"
        self.problems.add(node.line, node.name, None, said)

    def _published(self, node: Node) -> None:
        self._warn(node.line, node.name, None, "means nothing here and is passed over")

    def _taken(self, node: Node, kind: str, name: str, attribute: str = "name") -> bool:
        """Whether a name is given a second time, which is said."""
        first = self.lines.get((kind, name))
        if first is None:
            self.lines[kind, name] = node.line
            return False
        self.problems.add(
            node.line, node.name, attribute, f"{quoted(name)} is taken by the <{node.name}> in {where(first)}"
        )
        return True

    def _node(self, node: Node) -> None:
        values = elements.attributes(node, grammar.NODE, self.problems)
        elements.text(node, grammar.NODE, self.problems)
        elements.children(node, grammar.NODE, self.problems)
        name, node_id = values["name"], values["id"]
        if node_id is not None:
            try:
                names.check_own_node_id(node_id)
            except NameRefused as error:
                self.problems.add(node.line, node.name, "id", f"{quoted(node_id)} {error.reason}")
        if len(self.nodes) >= grammar.MOST_NODES:
            self.problems.add(node.line, node.name, None, f"more than {grammar.MOST_NODES:,} nodes")
            raise EnoughProblems
        if node_id is not None:
            self._taken(node, "node id", node_id, "id")
        if name is not None and not self._taken(node, "node", name):
            self.nodes[name] = NodeEntry(name, node_id)

    def _cohort(self, node: Node, values: elements.Values) -> None:
        name, members = values["name"], values["nodes"]
        if members == ():
            self.problems.add(node.line, node.name, "nodes", "names no node")
        for member in members or ():
            if said := checks.no_node(member, self.nodes):
                self.problems.add(node.line, node.name, "nodes", said)
        if name is not None and not self._taken(node, "cohort", name):
            self.cohorts.append(Cohort(name, members or ()))

    def _module(self, node: Node) -> checks.Found:
        element = PSYSPEC_MODULE if node.name == PSYSPEC_MODULE.name else PSYSPEC_SUPERVISOR
        before = len(self.problems.problems)
        for child in node.children:
            if child.name in PUBLISHED:
                self._published(child)
        self._literal(node)
        node = self.sources.put_in(node, self.problems)
        module = read_module(node, self.problems, element=element, references=False)
        name = module.values["name"]
        if name is not None:
            self._taken(node, "module", name)
        spec: ComponentSpec | None = None
        if len(self.problems.problems) == before:
            spec = component(module, _as_it_is, self.problems)
            if element is PSYSPEC_SUPERVISOR:
                spec = replace(spec, supervisor=True)
        return checks.Found(
            name=name,
            node=module.values["node"],
            depends=module.values["depends"] or (),
            line=node.line,
            element=node.name,
            spec=spec,
        )

    def _literal(self, node: Node) -> None:
        """Warns of what would be a reference in a recipe."""
        for each in (node, *node.children):
            for name, text in each.attributes.items():
                if reference := _REFERENCE.search(text):
                    self._warn(
                        each.line, each.name, name,
                        f"{quoted(reference.group())} stands for itself in a PsySpec; a module knows its node"
                        " from its environment (BAKEMESH_NODE, BAKEMESH_NODEID)",
                    )  # fmt: skip


def _as_it_is(text: str) -> str:
    return text
