"""Reads one element by its table: attributes to values, children and text checked, every problem said.

A value that is wrong is said and left out (its default stands in), so that one mistake makes one problem.
"""

from __future__ import annotations

from typing import Any

from bakemesh.protocol.builder.spec import references
from bakemesh.protocol.builder.spec.document import Node, shown
from bakemesh.protocol.builder.spec.grammar import (
    EVERYWHERE,
    MODULE,
    MODULE_STEP,
    PSYSPEC_MODULE,
    PSYSPEC_SUPERVISOR,
    RECIPE,
    Attribute,
    Content,
    Element,
)
from bakemesh.protocol.builder.spec.problems import Collector, listed, quoted, suggestion

Values = dict[str, Any]


def attributes(
    node: Node, element: Element, problems: Collector, scope: references.Scope | None = None
) -> Values:
    """Every attribute of the table: the value given, else the default. `scope`: for references."""
    known = element.attributes
    values = {name: attribute.default for name, attribute in known.items()}
    for name in node.twice:
        problems.add(node.line, node.name, name, "is given twice; names are matched without case")
    for name, text in node.attributes.items():
        attribute = known.get(name)
        if attribute is None:
            problems.add(node.line, node.name, name, _unknown_attribute(name, element))
            continue
        try:
            values[name] = attribute.type.read(text)
        except ValueError as error:
            problems.add(node.line, node.name, name, f"{error}{_no_reference(text, attribute)}")
            continue
        if scope is not None and attribute.references and "$" in text:
            shell = name == "command" and node.attributes.get("shell") == "yes"
            for said in references.wrong(text, scope, shell=shell):
                problems.add(node.line, node.name, name, said)
    for name, attribute in known.items():
        if attribute.required and name not in node.attributes:
            problems.add(
                node.line, node.name, name, f"is missing; <{node.name}> needs it{_example(attribute)}"
            )
    return values


def _example(attribute: Attribute) -> str:
    words = getattr(attribute.type, "words", None)
    return f" (one of {listed(words)})" if words else ""


def _no_reference(text: str, attribute: Attribute) -> str:
    if "${" in text and not attribute.references:
        return " (references are not possible here)"
    return ""


def _unknown_attribute(name: str, element: Element) -> str:
    if name.startswith("{") or ":" in name:
        return "unknown attribute; namespaces mean nothing here"
    if element is MODULE and name == "node":
        return "has a meaning in a PsySpec alone; in a recipe put the module into a <recipe node=…>"
    if element in (PSYSPEC_MODULE, PSYSPEC_SUPERVISOR) and name in MODULE_STEP:
        return "belongs to a <module> step of a recipe, not to one of a PsySpec"
    if near := suggestion(name, element.attributes):
        return f"unknown attribute{near}"
    owners = list(dict.fromkeys(owner.name for owner in EVERYWHERE if name in owner.attributes))
    if element is RECIPE and "recipe" in owners:
        return "unknown attribute of the root; it belongs to a step (an inner <recipe> is one)"
    if owners and owners != [element.name]:
        return f"unknown attribute here; it belongs to {listed(f'<{owner}>' for owner in owners)}"
    if element.attributes:
        return f"unknown attribute; <{element.name}> takes {listed(element.attributes)}"
    return f"unknown attribute; <{element.name}> takes none"


def children(
    node: Node, element: Element, problems: Collector, scope: references.Scope | None = None
) -> dict[str, list[tuple[Node, Values]]]:
    """The known children with their values, by name, in order; an element's own children are read too."""
    found: dict[str, list[tuple[Node, Values]]] = {name: [] for name in element.children}
    for child in node.children:
        table = element.children.get(child.name)
        if table is None:
            if child.name not in element.ignored:
                problems.add(child.line, child.name, None, _unknown_child(child, element))
            continue
        if found[child.name] and not table.many:
            problems.add(
                child.line, child.name, None, f"<{node.name}> takes one <{child.name}>; this is another"
            )
            continue
        found[child.name].append((child, attributes(child, table, problems, scope)))
        children(child, table, problems, scope)
        text(child, table, problems, scope)
    for name, table in element.children.items():
        if table.required and not found[name]:
            problems.add(node.line, node.name, None, f"needs a <{name}> inside")
    return found


def _unknown_child(child: Node, element: Element) -> str:
    if not element.children:
        return f"<{element.name}> takes no elements inside"
    near = suggestion(child.name, element.children)
    return f"unknown element in <{element.name}>{near or f'; it takes {listed(element.children)}'}"


def text(node: Node, element: Element, problems: Collector, scope: references.Scope | None = None) -> str:
    """The text of an element that takes one: the one piece that is not blank, else what stands first."""
    pieces = node.texts()
    filled = [piece for piece in pieces if piece and not piece.isspace()]
    if element.content is Content.NOTHING:
        if filled:
            problems.add(
                node.line, node.name, None, f"text {shown(filled[0])} has no meaning here; remove it"
            )
        return ""
    if len(filled) > 1:
        problems.add(
            node.line,
            node.name,
            None,
            f"its text is cut in {len(filled)} pieces; keep it together, elements before it",
        )
    found = filled[0] if filled else pieces[0]
    if element.references and scope is not None and "$" in found:
        for said in references.wrong(found, scope):
            problems.add(node.line, node.name, None, said)
    return found


def either(node: Node, names: tuple[str, ...], problems: Collector, *, needed: bool = True) -> None:
    """Says it where more than one of the attributes `names` is given, or none though one is `needed`."""
    given = [name for name in names if name in node.attributes]
    words = " or ".join(f"{name}=" for name in names)
    if len(given) > 1:
        problems.add(
            node.line, node.name, given[1], f"give {words}, not {given[0]}= and {given[1]}= together"
        )
    elif needed and not given:
        problems.add(node.line, node.name, None, f"needs {words}")


def unknown_step(node: Node, steps: dict[str, Element]) -> str:
    """What to say of a child of a recipe that is no step."""
    if node.name.startswith("{"):
        return "namespaces mean nothing in a recipe; remove xmlns"
    near = suggestion(node.name, steps)
    if near:
        return f"unknown step{near}"
    owners = [step.name for step in steps.values() if node.name in step.children]
    if owners:
        return f"stands inside {listed(f'<{owner}>' for owner in owners)}, not in the recipe itself"
    return f"unknown step {quoted(node.name)}; steps are {listed(steps)}"
