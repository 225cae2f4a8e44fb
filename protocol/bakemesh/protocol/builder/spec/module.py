"""The rules of a module's spec that its table alone cannot say: its crank, its parameters, its health.

Used for a `<module>` step of a recipe; a PsySpec's modules follow the same rules. Left out: rules among
modules (cycles of `depends`), which need all of them.
"""

from __future__ import annotations

import math

from bakemesh.protocol.builder.spec import elements
from bakemesh.protocol.builder.spec.document import Node
from bakemesh.protocol.builder.spec.grammar import MODULE, Element
from bakemesh.protocol.builder.spec.problems import Collector, quoted
from bakemesh.protocol.builder.spec.references import Scope

_UNIQUE = ("parameter", "trigger", "post", "env")


def check_module(
    node: Node, problems: Collector, scope: Scope | None = None, element: Element = MODULE
) -> elements.Values:
    """Says every problem of the module's element; returns its attributes' values."""
    values = elements.attributes(node, element, problems, scope)
    elements.text(node, element, problems)
    found = elements.children(node, element, problems, scope)
    if values["name"] is not None and values["name"] in (values["depends"] or ()):
        problems.add(node.line, node.name, "depends", f"module {quoted(values['name'])} depends on itself")
    for crank, given in found["crank"]:
        elements.either(crank, ("script", "command", "service"), problems)
        if given["function"] is not None and given["script"] is None:
            problems.add(
                crank.line, crank.name, "function", "names a function of a script; script= is missing"
            )
    for parameter, given in found["parameter"]:
        _parameter(parameter, given, problems)
    for health, _ in found["health"]:
        elements.either(health, ("command", "subject"), problems)
    for kind in _UNIQUE:
        seen: set[str] = set()
        for child, given in found[kind]:
            if given["name"] in seen:
                problems.add(
                    child.line, kind, "name", f"{quoted(given['name'])} is taken by another <{kind}>"
                )
            if given["name"] is not None:
                seen.add(given["name"])
    return values


def _parameter(node: Node, given: elements.Values, problems: Collector) -> None:
    kind, value = given["type"], given["value"]
    if kind in (None, "String") or value is None or "${" in value:
        return
    try:
        if "_" in value or (kind == "Float" and not math.isfinite(float(value))):
            raise ValueError
        if kind == "Integer":
            int(value)
    except ValueError:
        word = "a whole number" if kind == "Integer" else "a finite number"
        problems.add(node.line, node.name, "value", f"must be {word} (type={kind}), not {quoted(value)}")
