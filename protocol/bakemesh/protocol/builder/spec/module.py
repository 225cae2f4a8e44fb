"""A module's element → ComponentSpec, and the rules of it that its table alone cannot say.

Used for a `<module>` step of a recipe, whose references are put in as the step starts (`component_of`), and
for a PsySpec's modules, whose texts stand for themselves. Left out: rules among modules (cycles of
`depends`), which need all of them.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bakemesh.protocol.builder.spec import elements, words
from bakemesh.protocol.builder.spec.component import (
    CommandCrank,
    ComponentSpec,
    Health,
    Parameter,
    Post,
    ScriptCrank,
    ServiceCrank,
    Trigger,
    matches,
)
from bakemesh.protocol.builder.spec.document import Limits, Node, read
from bakemesh.protocol.builder.spec.grammar import MODULE, Element
from bakemesh.protocol.builder.spec.problems import (
    Collector,
    EnoughProblems,
    Problem,
    RecipeRefused,
    quoted,
    suggestion,
)
from bakemesh.protocol.builder.spec.references import Scope
from bakemesh.protocol.errors import ProtocolError
from bakemesh.protocol.rights import BUILDER_PREFIX, STARTUP_PREFIX
from bakemesh.protocol.subjects import travels

SHARED_BYTES: Final = 16 << 20  # of sources put in by `source-of`, in one document
INTEGERS: Final = 1 << 63
_OTHERS = (BUILDER_PREFIX, STARTUP_PREFIX)
_UNIQUE = ("parameter", "trigger", "post", "env")
# a step's own XML: of a recipe that was within its bounds, but with marks of its own and a shared source
_STEP_LIMITS: Final = Limits(xml_bytes=64 << 20, attribute_bytes=1 << 20, elements=100_000, what="module")

Expand = Callable[[str], str]


class ComponentRefused(ProtocolError):
    """Raised when a module's spec is wrong once its references are put in: `problems`, at least one."""

    code = "step_failed"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


@dataclass(frozen=True, slots=True)
class Module:
    """A module's element, read: its attributes' values, its children with theirs, by name."""

    values: elements.Values
    found: dict[str, list[tuple[Node, elements.Values]]]


@dataclass(slots=True)
class Sources:
    """Scripts that travel in a document, by the module that holds them, so that others can share them."""

    by_module: dict[str, str] = field(default_factory=dict)
    _spent: list[int] = field(default_factory=lambda: [0])  # one budget a document

    def beside(self) -> Sources:
        """Of another list of modules in the same document."""
        return Sources(_spent=self._spent)

    def put_in(self, node: Node, problems: Collector) -> Node:
        """The module's element with the source that its crank shares in place of `source-of`."""
        at = next((at for at, child in enumerate(node.children) if child.name == "crank"), None)
        if at is None:
            return node
        crank = node.children[at]
        wanted = crank.attributes.get("source-of")
        if wanted is None:
            if source := _filled(crank):
                self.by_module.setdefault(node.attributes.get("name", ""), source)
            return node
        if said := self._unmet(crank, wanted):
            problems.add(crank.line, crank.name, "source-of", said)
        # one mistake makes one problem: where it was said, something stands in
        source = self.by_module.get(wanted, "# missing") if "script" in crank.attributes else crank.text
        self._spent[0] += len(source)
        if self._spent[0] > SHARED_BYTES:
            problems.add(
                crank.line, crank.name, "source-of",
                f"with it the scripts are over {SHARED_BYTES:,} characters; at most so many are put in",
            )  # fmt: skip
            raise EnoughProblems
        crank = replace(
            crank,
            text=source,
            attributes={name: text for name, text in crank.attributes.items() if name != "source-of"},
        )
        return replace(node, children=[*node.children[:at], crank, *node.children[at + 1 :]])

    def _unmet(self, crank: Node, wanted: str) -> str | None:
        if "script" not in crank.attributes:
            return "is the source of a script; script= is missing"
        if _filled(crank):
            return "the source stands here already; give one of the two"
        if wanted in self.by_module:
            return None
        near = suggestion(wanted, self.by_module)
        return f"no module {quoted(wanted)} before this one holds a script's source{near}"


def check_module(
    node: Node, problems: Collector, scope: Scope | None = None, element: Element = MODULE
) -> elements.Values:
    """Says every problem of the module's element; returns its attributes' values."""
    return read_module(node, problems, scope, element).values


def read_module(
    node: Node,
    problems: Collector,
    scope: Scope | None = None,
    element: Element = MODULE,
    *,
    references: bool = True,
) -> Module:
    """The module's element; says every problem of it. `references`: whether `${…}` is one."""
    values = elements.attributes(node, element, problems, scope)
    elements.text(node, element, problems)
    found = elements.children(node, element, problems, scope)
    if values["name"] is not None and values["name"] in (values["depends"] or ()):
        problems.add(node.line, node.name, "depends", f"module {quoted(values['name'])} depends on itself")
    if (values["name"] or "").startswith(_OTHERS):
        problems.add(
            node.line, node.name, "name",
            f"names that begin with {' or '.join(map(quoted, _OTHERS))} are those of a node's services",
        )  # fmt: skip
    for crank, given in found["crank"]:
        _check_crank(crank, given, problems)
    for parameter, given in found["parameter"]:
        kind, value = given["type"], given["value"]
        if kind and value is not None and not (references and "${" in value):
            _value(parameter, kind, value, problems)
    for trigger, given in found["trigger"]:
        for type_ in given["durable"] if given["type"] else ():
            if not matches(given["type"], type_):
                problems.add(
                    trigger.line, trigger.name, "durable",
                    f"{quoted(type_)} is no type that this trigger takes ({given['type']})",
                )  # fmt: skip
    for post, given in found["post"]:
        if given["type"] and travels(given["type"]) is not None:
            problems.add(
                post.line, post.name, "type", f"{quoted(given['type'])} is the contract's own; name another"
            )
    for health, given in found["health"]:
        elements.either(health, ("command", "subject"), problems)
        _words(health, given["command"], problems)
    for kind in _UNIQUE:
        _unique(kind, found[kind], problems)
    return Module(values, found)


def _unique(kind: str, found: list[tuple[Node, elements.Values]], problems: Collector) -> None:
    seen: set[str] = set()
    for child, given in found:
        if given["name"] in seen:
            problems.add(child.line, kind, "name", f"{quoted(given['name'])} is taken by another <{kind}>")
        if given["name"] is not None:
            seen.add(given["name"])


def _check_crank(crank: Node, given: elements.Values, problems: Collector) -> None:
    elements.either(crank, ("script", "command", "service"), problems)
    script: str | None = given["script"]
    if given["function"] is not None and script is None:
        problems.add(crank.line, crank.name, "function", "names a function of a script; script= is missing")
    if given["function"] is not None and not given["function"].isidentifier():
        problems.add(
            crank.line, crank.name, "function", f"{quoted(given['function'])} is no name of a Python function"
        )
    _words(crank, given["command"], problems)
    if script is None:
        if _filled(crank):
            problems.add(
                crank.line, crank.name, None, "text is the source of a script; name it with script= too"
            )
    elif not _filled(crank) and not script.startswith(("/", "${")):
        problems.add(
            crank.line, crank.name, "script",
            f"{quoted(script)} is no absolute path; a script that is not the node's own travels in the spec:"
            " its source stands inside <crank>",
        )  # fmt: skip


def _words(node: Node, command: str | None, problems: Collector) -> tuple[str, ...]:
    if command is None:
        return ()
    try:
        argv = tuple(words.split(command))
    except ValueError as error:
        problems.add(
            node.line, node.name, "command",
            f"{quoted(command)} does not split into words: {str(error).lower()}",
        )  # fmt: skip
        return ()
    if not argv or not argv[0]:
        problems.add(node.line, node.name, "command", "names no program")
    return argv


def _value(node: Node, kind: str, text: str, problems: Collector) -> int | float | str:
    """A parameter's value by its type; what is wrong with it is said."""
    if kind == "String":
        return text
    word = "a finite number"
    try:
        if kind == "Float":
            number = float(text)
            if "_" in text or not math.isfinite(number):
                raise ValueError
            return number
        word = "a whole number of 64 bits"
        if "_" in text or not -INTEGERS <= (whole := int(text)) < INTEGERS:
            raise ValueError
        return whole
    except ValueError:
        problems.add(node.line, node.name, "value", f"must be {word} (type={kind}), not {quoted(text)}")
        return 0


def component_of(xml: str, expand: Expand) -> ComponentSpec:
    """The spec in a `<module>` step's XML; `expand` puts references in, in the texts that may hold them.

    Raises ComponentRefused where it is wrong (with the values that came in), and what `expand` raises.
    """
    problems = Collector("module")
    spec: ComponentSpec | None = None
    try:
        node = read(xml, _STEP_LIMITS, problems)
        if node.name != "module":
            problems.add(node.line, node.name, None, "this is no <module>")
        module = read_module(node, problems)
        if not problems.problems:
            spec = component(module, expand, problems)
    except (RecipeRefused, EnoughProblems):
        spec = None
    if spec is None or problems.problems:
        raise ComponentRefused(tuple(problems.problems))
    return spec


def component(module: Module, expand: Expand, problems: Collector) -> ComponentSpec:
    """The spec of an element that was read without a problem; what is wrong once `expand` did its work is
    said, and then the spec is of no use."""
    values, found = module.values, module.found
    return ComponentSpec(
        name=values["name"],
        crank=_crank(*found["crank"][0], expand, problems),
        description="".join("".join(node.texts()).strip() for node, _ in found["description"]),
        supervisor=values.get("supervisor", False),
        parameters=tuple(
            Parameter(name=given["name"], value=_value(node, given["type"], expand(given["value"]), problems))
            for node, given in found["parameter"]
        ),
        triggers=tuple(
            Trigger(
                name=given["name"],
                type=given["type"],
                after_ms=given["after"],
                durable=tuple(sorted(given["durable"])),
            )
            for _, given in found["trigger"]
        ),
        posts=tuple(
            Post(name=given["name"], type=given["type"], durable=given["durable"])
            for _, given in found["post"]
        ),
        health=_health(found["health"], expand, problems),
        env=tuple((given["name"], expand(given["value"])) for _, given in found["env"]),
        depends=values["depends"] or (),
        **_given(values, _NUMBERS),
    )


_NUMBERS: Final = {
    "restart": "restart",
    "max-restarts": "max_restarts",
    "restart-window-ms": "restart_window_ms",
    "shutdown-ms": "shutdown_ms",
    "ready-ms": "ready_ms",
    "memory-max-bytes": "memory_max_bytes",
    "cpu-share": "cpu_share",
}
_HEALTH: Final = {"interval-ms": "interval_ms", "timeout-ms": "timeout_ms", "misses": "misses"}


def _given(values: elements.Values, wanted: dict[str, str]) -> dict[str, Any]:
    """What was given, by the model's names; the model has the defaults."""
    return {name: values[written] for written, name in wanted.items() if values[written] is not None}


def _crank(
    node: Node, given: elements.Values, expand: Expand, problems: Collector
) -> ScriptCrank | CommandCrank | ServiceCrank:
    if given["service"] is not None:
        return ServiceCrank(service=given["service"])
    if given["command"] is not None:
        argv = tuple(expand(word) for word in _words(node, given["command"], problems))
        if argv and not argv[0]:
            problems.add(node.line, node.name, "command", "names no program")
        return CommandCrank(argv=argv)
    script = expand(given["script"])
    source = _filled(node)
    if source is None and not script.startswith("/"):
        problems.add(node.line, node.name, "script", f"{quoted(script)} is no absolute path")
    return ScriptCrank(
        script=script,
        function=given["function"] or "crank",
        source=None if source is None else _dedented(source),
    )


def _filled(crank: Node) -> str | None:
    """A script's source, None where there is nothing but blanks."""
    source = "".join(crank.texts())
    return source if source and not source.isspace() else None


def _dedented(source: str) -> str:
    """A source that is indented as a whole, which could not run as it is, without that; others untouched."""
    lines = list(_lines(source))
    if lines and all(line[0] in " \t" for line in lines):
        return textwrap.dedent(source)
    return source


def _lines(source: str) -> Iterator[str]:
    return (line for line in source.splitlines() if line.strip())


def _health(found: list[tuple[Node, elements.Values]], expand: Expand, problems: Collector) -> Health | None:
    if not found:
        return None
    node, given = found[0]
    return Health(
        argv=tuple(expand(word) for word in _words(node, given["command"], problems)),
        subject=given["subject"],
        **_given(given, _HEALTH),
    )
