"""Rules among the modules of a PsySpec: names, nodes, what depends on what, what is stored, what fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bakemesh.protocol.builder.spec.component import ComponentSpec, ScriptCrank, matches
from bakemesh.protocol.builder.spec.document import LIMITS as RECIPE
from bakemesh.protocol.builder.spec.document import write, written
from bakemesh.protocol.builder.spec.module import SHARED_BYTES
from bakemesh.protocol.builder.spec.problems import Collector, quoted, suggestion
from bakemesh.protocol.psyspec.bringup import module_node
from bakemesh.protocol.psyspec.model import ModuleEntry, NodeEntry
from bakemesh.protocol.psyspec.order import cycles
from bakemesh.protocol.psyspec.placing import ORDER

STEP_BYTES: Final = 256  # of a module's marks as a step, and its <attach>, beside the names
DURABLE_TYPES: Final = 1_000
MEETINGS: Final = 200_000  # of triggers and durable types
MODULES_A_NODE: Final = RECIPE.steps // 2


@dataclass(frozen=True, slots=True)
class Found:
    """A module as far as it could be read. `spec` None: something in it is wrong, and was said."""

    name: str | None
    node: str | None
    depends: tuple[str, ...]
    line: int
    element: str
    spec: ComponentSpec | None


def no_node(name: str, nodes: Mapping[str, NodeEntry]) -> str | None:
    """What to say of a node that is not among the `<node>`s."""
    if name in nodes:
        return None
    near = suggestion(name, nodes)
    return f"no <node> is named {quoted(name)}{near or f'; add <node name={quoted(name)}/>'}"


def related(modules: Sequence[Found], nodes: Mapping[str, NodeEntry], problems: Collector) -> None:
    """Says nodes that are not there, and dependences that cannot be kept."""
    by_name: dict[str, Found] = {}
    for module in modules:
        if module.name is not None:
            by_name.setdefault(module.name, module)
    for module in modules:
        if module.node is not None and (said := no_node(module.node, nodes)):
            problems.add(module.line, module.element, "node", said)
        for name in module.depends:
            if name != module.name and (said := _unmet(module, name, by_name)):
                problems.add(module.line, module.element, "depends", said)
    depends = {name: tuple(d for d in module.depends if d != name) for name, module in by_name.items()}
    for cycle in cycles(depends):
        first = by_name[cycle[0]]
        problems.add(
            first.line, first.element, "depends",
            f"{' → '.join(cycle)}: a cycle; none of them could be started first",
        )  # fmt: skip


def _unmet(module: Found, name: str, by_name: Mapping[str, Found]) -> str | None:
    other = by_name.get(name)
    if other is None:
        return f"no module is named {quoted(name)}{suggestion(name, by_name)}"
    if other.node == module.node or other.node is None or module.node is None:
        return None  # without a node it may be the same one: `placing` knows, where the node is known
    return f"{quoted(name)} is on node {other.node}, this one on node {module.node}; {ORDER}"


def durable(entries: tuple[ModuleEntry, ...], root_line: int, problems: Collector) -> tuple[ModuleEntry, ...]:
    """The same with what is stored: each trigger gets the durable types, of all posts, that it takes.

    Says it where those are more than a mesh is meant to store, or meet in too many places.
    """
    stored = sorted({post.type for entry in entries for post in entry.spec.posts if post.durable})
    if not stored:
        return entries
    if len(stored) > DURABLE_TYPES:
        said = f"has {len(stored):,} types of durable posts; at most {DURABLE_TYPES:,} are allowed"
        problems.add(root_line, "psyspec", None, said)
        return entries
    patterns = dict.fromkeys(each.type for entry in entries for each in entry.spec.triggers)
    wild = [pattern for pattern in patterns if "*" in pattern]
    if len(wild) * len(stored) > MEETINGS:
        said = f"has {len(stored):,} types of durable posts and {len(wild):,} trigger types with '*'"
        problems.add(root_line, "psyspec", None, f"{said}, too many to bring together; name types")
        return entries
    taken: dict[str, tuple[str, ...]] = {
        pattern: (pattern,) for pattern in set(stored).intersection(patterns)
    }
    taken |= {pattern: tuple(type_ for type_ in stored if matches(pattern, type_)) for pattern in wild}
    met = sum(len(taken.get(each.type, ())) for entry in entries for each in entry.spec.triggers)
    if met > MEETINGS:
        said = f"has triggers that take {met:,} durable types, one by one; at most {MEETINGS:,} are allowed"
        problems.add(root_line, "psyspec", None, said)
        return entries
    return tuple(
        replace(
            entry,
            spec=replace(
                entry.spec,
                triggers=tuple(
                    replace(each, durable=tuple(sorted({*each.durable, *taken.get(each.type, ())})))
                    for each in entry.spec.triggers
                ),
            ),
        )
        for entry in entries
    )


def sizes(
    entries: tuple[ModuleEntry, ...],
    lines: Mapping[str, int],
    root_line: int,
    problems: Collector,
) -> None:
    """Says what a recipe cannot hold: an attribute, a node's modules.

    Modules without a node count for each node, for it may be the one whose PsySpec it is.
    """
    by_node: dict[str | None, list[_Weight]] = {}
    for entry in entries:
        by_node.setdefault(entry.node, []).append(_weigh(entry.spec, lines, problems))
    anywhere = by_node.pop(None, [])
    said = _too_much(anywhere, "the node whose PsySpec it is") or [
        each for name, own in by_node.items() for each in _too_much([*anywhere, *own], f"node {name}")
    ]
    for each in said:
        problems.add(root_line, "psyspec", None, each)


@dataclass(frozen=True, slots=True)
class _Weight:
    elements: int
    size: int  # without the script
    script: str | None
    script_size: int


def _weigh(spec: ComponentSpec, lines: Mapping[str, int], problems: Collector) -> _Weight:
    source = spec.crank.source if isinstance(spec.crank, ScriptCrank) else None
    node = module_node(spec, {} if source is None else {source: spec.name})
    for each in (node, *node.children):
        for name, text in each.attributes.items():
            size = len(text.encode())
            if size > RECIPE.attribute_bytes:
                problems.add(
                    lines[spec.name], each.name, name,
                    f"of module {quoted(spec.name)} is {size:,} bytes long as a recipe holds it (quoted, its"
                    f" '$' doubled); at most {RECIPE.attribute_bytes:,} are allowed",
                )  # fmt: skip
    return _Weight(
        elements=2 + len(node.children),
        size=len(write(node).encode()) + 3 * len(spec.name) + STEP_BYTES,
        script=source,
        script_size=0 if source is None else len(written(source).encode()),
    )


def _too_much(weights: Sequence[_Weight], what: str) -> list[str]:
    said: list[str] = []
    if len(weights) > MODULES_A_NODE:
        said.append(
            f"{what} gets {len(weights):,} modules; at most {MODULES_A_NODE:,} can be brought up on one"
        )
    elements = 1 + sum(weight.elements for weight in weights)
    if elements > RECIPE.elements:
        said.append(
            f"the modules of {what} hold {elements:,} elements; its bring-up takes {RECIPE.elements:,}"
        )
    scripts = {weight.script: weight.script_size for weight in weights if weight.script is not None}
    shared = sum(len(weight.script) for weight in weights if weight.script is not None)
    if shared > SHARED_BYTES:
        said.append(
            f"the modules of {what} have {shared:,} characters of scripts, shared ones counted for each;"
            f" at most {SHARED_BYTES:,} are allowed"
        )
    size = STEP_BYTES + sum(weight.size for weight in weights) + sum(scripts.values())
    if size > RECIPE.xml_bytes:
        said.append(
            f"the bring-up of {what} needs {size:,} bytes, {sum(scripts.values()):,} of them scripts; at most"
            f" {RECIPE.xml_bytes:,} are allowed (name scripts that are files of the node by absolute paths)"
        )
    return said
