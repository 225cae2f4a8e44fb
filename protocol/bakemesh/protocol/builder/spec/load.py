"""XML text → Recipe, or RecipeRefused with everything that is wrong with it.

Guarantees: nothing is baked that was not checked whole; every problem up to a hundred is said at once, with
its line; no text, however hostile, makes it raise anything else or cost more than its first bounds. Pure:
looks up nothing, so that a program or a file that does not exist is found when the step starts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from bakemesh.protocol import names
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.spec import document, elements, grammar, steps
from bakemesh.protocol.builder.spec.document import LIMITS, Limits, Node
from bakemesh.protocol.builder.spec.model import ModuleStep, OnFailure, Recipe, RecipeStep, Step
from bakemesh.protocol.builder.spec.module import Sources, check_module
from bakemesh.protocol.builder.spec.problems import Collector, EnoughProblems, RecipeRefused, listed, quoted
from bakemesh.protocol.builder.spec.references import Earlier, Scope


def load_recipe(
    xml: str,
    limits: Limits = LIMITS,
    *,
    file: str = "recipe",
    supported: frozenset[str] | None = None,
    max_payload: int | None = None,
    params: Collection[str] | None = None,
) -> Recipe:
    """The recipe in `xml`. Raises RecipeRefused and nothing else, whatever the text.

    `file` goes into problems. `supported`: kinds of steps that this Builder runs; others are refused with
    `unsupported_step` (those of inner recipes are their node's business). `max_payload`, bytes: of the server
    that Data goes to. `params`: names that came with the recipe; None where they are not known, as offline.
    """
    problems = Collector(file)
    root = document.read(xml, limits, problems)
    loader = _Loader(limits, problems, supported, max_payload, params)
    try:
        recipe = loader.root(root)
    except EnoughProblems:
        recipe = None
    if recipe is None or problems.problems:
        unsupported_only = recipe is not None and len(problems.problems) == loader.unsupported
        code = Code.UNSUPPORTED_STEP if unsupported_only else Code.INVALID_RECIPE
        raise RecipeRefused(sorted(problems.problems, key=lambda problem: problem.line), code)
    return recipe


class _Loader:
    """One reading of one document."""

    def __init__(
        self,
        limits: Limits,
        problems: Collector,
        supported: frozenset[str] | None,
        max_payload: int | None,
        params: Collection[str] | None,
    ) -> None:
        self.limits, self.problems, self.params = limits, problems, params
        self.supported = supported
        self.unsupported = 0
        self.largest = grammar.MAX_DATA_BYTES
        if max_payload is not None:
            self.largest = max(1, min(self.largest, max_payload - grammar.PAYLOAD_MARGIN))
        self._steps = 0
        self._sources = Sources()

    def root(self, node: Node) -> Recipe | None:
        """The recipe of the document's root."""
        if node.name != "recipe":
            kind = "a PsySpec" if node.name == "psyspec" else "no recipe"
            self.problems.add(node.line, node.name, None, f"this is {kind}; a recipe's root is <recipe>")
            return None
        values = elements.attributes(node, grammar.RECIPE, self.problems)
        return self._recipe(node, values, inner=False)

    def _recipe(self, node: Node, values: elements.Values, *, inner: bool) -> Recipe:
        problems = self.problems
        elements.text(node, grammar.RECIPE, problems)
        self._data_bytes(node, values)
        recipe = Recipe(
            name=values["name"],
            steps=(),
            expires_ms=values["expires-ms"],
            timeout_ms=_given(values["timeout-ms"], 0),
            on_failure=OnFailure(_given(values["on-failure"], "fail")),
            status_interval_ms=_given(values["status-interval-ms"], 5000),
            data_interval_ms=_given(values["data-interval-ms"], 1000),
            max_data_bytes=_given(values["max-data-bytes"], min(262144, self.largest)),
        )
        if not node.children:
            problems.add(node.line, node.name, None, f"holds no step; steps are {listed(grammar.STEPS)}")
        self._steps += len(node.children)
        if self._steps > self.limits.steps:
            problems.add(
                node.line, node.name, None,
                f"holds {self._steps:,} steps, inner ones counted; at most {self.limits.steps:,} are allowed",
            )  # fmt: skip
            raise EnoughProblems
        scope = self._scope(node, inner=inner)
        found: list[Step] = []
        sources = self._sources.beside()
        for index, child in enumerate(node.children):
            element = grammar.STEPS.get(child.name)
            if element is None:
                problems.add(child.line, child.name, None, elements.unknown_step(child, grammar.STEPS))
                continue
            if self.supported is not None and not inner and child.name not in self.supported:
                self.unsupported += 1
                here = [kind for kind in grammar.STEPS if kind in self.supported]
                problems.add(
                    child.line,
                    child.name,
                    None,
                    f"this Builder runs no <{child.name}> steps; it runs {listed(here)}",
                )
            if child.name == "module":
                child = sources.put_in(child, problems)
            found.append(self._step(node, child, element, recipe, replace(scope, index=index)))
        return replace(recipe, steps=tuple(found))

    def _scope(self, node: Node, *, inner: bool) -> Scope:
        """What the steps are called and which entries they keep; says names that are taken."""
        named: dict[str, Earlier] = {}
        entries: dict[str, Earlier] = {}
        lines: dict[str, int] = {}
        for index, child in enumerate(node.children):
            name = _step_name(child, index)
            if name in named:
                which = "is" if "name" in child.attributes else "(by default) is"
                self.problems.add(
                    child.line, child.name, "name",
                    f"{quoted(name)} {which} the name of the step in line {lines[name]} already",
                )  # fmt: skip
            else:
                named[name], lines[name] = Earlier(index, child.name), child.line
            if child.name == "requestdata" and (entry := child.attributes.get("entry")):
                entries.setdefault(entry, Earlier(index, child.name))
        return Scope(0, named, entries, self.params, inner)

    def _step(self, parent: Node, node: Node, element: grammar.Element, recipe: Recipe, scope: Scope) -> Step:
        problems = self.problems
        if node.name == "module":
            values = check_module(node, problems, scope)
            steps.retry_rules(node, values, problems)
        else:
            values = steps.read(node, element, problems, scope)
        if node.name != "recipe":
            self._data_bytes(node, values)
        common = _common(node, values, recipe, scope.index)
        match node.name:
            case "cli":
                return steps.cli(node, values, common, problems, scope, self.limits)
            case "code":
                return steps.code(node, values, common, problems, scope)
            case "requestdata":
                return steps.requestdata(node, values, common, problems, scope)
            case "attach":
                return steps.attach(node, values, common, problems)
            case "module":
                return ModuleStep(
                    **common, module=values["name"] or "", wait=values["wait"], xml=document.write(node)
                )
            case _:
                return self._inner(parent, node, values, common)

    def _inner(self, parent: Node, node: Node, values: elements.Values, common: dict[str, Any]) -> RecipeStep:
        """An inner recipe: what its own node will be sent, and the same read."""
        for name in grammar.HANDED_DOWN:
            if name in parent.attributes and name not in node.attributes:
                node.attributes[name] = parent.attributes[name]
        own = {**values, "on-failure": None}
        for name, at in (
            ("status-interval-ms", "status_interval_ms"),
            ("data-interval-ms", "data_interval_ms"),
            ("max-data-bytes", "max_data_bytes"),
        ):
            if name in node.attributes and own[name] is None:
                own[name] = common[at]
        recipe = self._recipe(node, own, inner=True)
        told = {name: text for name, text in node.attributes.items() if name not in grammar.OUTER_ONLY}
        xml = document.write(node, told)
        size = len(xml.encode())
        if size > self.limits.xml_bytes:
            self.problems.add(
                node.line, node.name, None,
                f"it alone is {size:,} bytes long; at most {self.limits.xml_bytes:,} are allowed",
            )  # fmt: skip
        return RecipeStep(**common, node=values["node"] or "", xml=xml, recipe=recipe)

    def _data_bytes(self, node: Node, values: elements.Values) -> None:
        given = values["max-data-bytes"]
        if given is not None and given > self.largest:
            self.problems.add(
                node.line, node.name, "max-data-bytes",
                f"is {given:,}; the bus here takes at most {self.largest:,} (its max_payload less 64 KiB)",
            )  # fmt: skip


def _common(node: Node, values: elements.Values, recipe: Recipe, index: int) -> dict[str, Any]:
    """What every step has; where it says nothing, the root's."""
    return {
        "name": _step_name(node, index),
        "index": index,
        "line": node.line,
        "timeout_ms": _given(values["timeout-ms"], recipe.timeout_ms),
        "retryable": values["retryable"],
        "retries": values["retries"],
        "retry_delay_ms": values["retry-delay-ms"],
        "on_failure": OnFailure(_given(values["on-failure"], recipe.on_failure)),
        "weight": values["weight"],
        "status_interval_ms": _given(values["status-interval-ms"], recipe.status_interval_ms),
        "data_interval_ms": _given(values["data-interval-ms"], recipe.data_interval_ms),
        "max_data_bytes": _given(values["max-data-bytes"], recipe.max_data_bytes),
    }


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value


def _step_name(node: Node, index: int) -> str:
    return node.attributes.get("name", f"{node.name[: names.TOKEN_LENGTH]}-{index}")
