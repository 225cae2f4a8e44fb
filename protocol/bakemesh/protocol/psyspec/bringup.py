"""The recipe that brings a node's modules up.

    for each level of `depends`: every <module wait="no">, then one <attach> each

so that a level starts side by side, and the next one when all of it is ready. The steps are retryable: a
module that runs already as it should is left alone, so that a Builder's crash in the middle ends no bring-up.
A script that several modules share stands in the recipe once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal

from bakemesh.protocol.builder.spec.component import (
    CommandCrank,
    ComponentSpec,
    Parameter,
    ScriptCrank,
    Trigger,
)
from bakemesh.protocol.builder.spec.document import Node, write
from bakemesh.protocol.builder.spec.grammar import MODULE
from bakemesh.protocol.psyspec.model import Group, ModuleEntry
from bakemesh.protocol.psyspec.order import levels

RECIPE_NAME = "bringup"
_TYPES = {int: "Integer", float: "Float", str: "String"}


def bringup(group: Group, only: Collection[str] | None = None) -> str:
    """The recipe that brings the group up; `only`: these of its modules. Raises ValueError for none."""
    entries = [entry for entry in group.modules if only is None or entry.spec.name in only]
    if not entries:
        raise ValueError(f"nothing of node {group.node} is to be brought up")
    return write(recipe_node(entries))


def recipe_node(entries: Iterable[ModuleEntry]) -> Node:
    """The recipe's tree."""
    specs = {entry.spec.name: entry.spec for entry in entries}
    taken = set(specs)
    holders: dict[str, str] = {}  # a script's source → the module that it travels with
    steps: list[Node] = []
    for level in levels({name: spec.depends for name, spec in specs.items()}):
        for name in level:
            step = module_node(specs[name], holders)
            step.attributes |= {"wait": "no", "retryable": "yes"}
            steps.append(step)
        steps += [
            _node("attach", name=_free(f"ready-{name}", taken), module=name, retryable="yes")
            for name in level
        ]
    root = _node("recipe", name=RECIPE_NAME)
    root.text = "\n"
    root.children = steps
    for step in steps:
        step.tail = "\n"
    return root


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "-"
    taken.add(name)
    return name


def element_of(spec: ComponentSpec) -> str:
    """The `<module>` that reads back to `spec` (`component_of`), whatever references would be put in."""
    return write(module_node(spec, {}))


def module_node(spec: ComponentSpec, holders: dict[str, str]) -> Node:
    """The same as a tree. `holders`: sources that travel already and with which module; kept up."""
    node = _node(
        "module",
        {
            "name": spec.name,
            "supervisor": "yes" if spec.supervisor else None,
            "restart": spec.restart,
            "max-restarts": spec.max_restarts,
            "restart-window-ms": spec.restart_window_ms,
            "shutdown-ms": spec.shutdown_ms,
            "ready-ms": spec.ready_ms,
            "depends": ",".join(spec.depends) or None,
            "memory-max-bytes": spec.memory_max_bytes,
            "cpu-share": None if spec.cpu_share is None else format(Decimal(repr(spec.cpu_share)), "f"),
        },
    )
    if spec.description:
        description = _node("description")
        description.text = spec.description
        node.children.append(description)
    node.children.append(_crank(spec, holders))
    node.children += [_parameter(each) for each in spec.parameters]
    node.children += [_trigger(each) for each in spec.triggers]
    for post in spec.posts:
        node.children.append(
            _node("post", name=post.name, type=post.type, durable="yes" if post.durable else None)
        )
    if health := spec.health:
        given = {
            "command": command(health.argv) if health.argv else None,
            "subject": health.subject,
            "interval-ms": health.interval_ms,
            "timeout-ms": health.timeout_ms,
            "misses": health.misses,
        }
        node.children.append(_node("health", given))
    node.children += [_node("env", name=name, value=value) for name, value in spec.env]
    return node


def _crank(spec: ComponentSpec, holders: dict[str, str]) -> Node:
    crank = spec.crank
    if isinstance(crank, CommandCrank):
        return _node("crank", command=command(crank.argv))
    if not isinstance(crank, ScriptCrank):
        return _node("crank", service=crank.service)
    node = _node("crank", script=crank.script, function=crank.function)
    if crank.source is not None:
        if holder := holders.get(crank.source):
            node.attributes["source-of"] = holder
        else:
            node.text = crank.source
            holders[crank.source] = spec.name
    return node


def _parameter(parameter: Parameter) -> Node:
    value = parameter.value
    text = value if isinstance(value, str) else repr(value)
    return _node("parameter", name=parameter.name, type=_TYPES[type(value)], value=text)


def _trigger(trigger: Trigger) -> Node:
    return _node(
        "trigger",
        name=trigger.name,
        type=trigger.type,
        after=trigger.after_ms or None,
        durable=" ".join(trigger.durable) or None,
    )


def command(argv: Iterable[str]) -> str:
    """One text that splits into `argv` again; only what has to be quoted is."""
    return " ".join(_quoted(word) for word in argv)


def _quoted(word: str) -> str:
    if word and not any(char in " \t\r\n'\"\\" for char in word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _node(
    element: str, given: Mapping[str, str | int | None] | None = None, **more: str | int | None
) -> Node:
    """An element with what is given; a `$` that could begin a reference is doubled."""
    table = MODULE if element == MODULE.name else MODULE.children.get(element)
    attributes: dict[str, str] = {}
    for name, value in {**(given or {}), **more}.items():
        if value is None:
            continue
        known = table.attributes.get(name) if table is not None else None
        text = str(value)
        attributes[name] = text.replace("$", "$$") if known is not None and known.references else text
    return Node(element, 0, attributes)
