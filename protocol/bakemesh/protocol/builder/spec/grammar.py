"""The grammar of recipes and of modules, as tables: which elements, which attributes, what each may be.

Kebab-case, matched without case. Rules that two attributes or two steps make together are in `load` and
`module`; what the words mean is in protocol/builder-v1.md, "Recipes". A value of None is one that was not
given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from bakemesh.protocol.builder.spec.attributes import (
    ExitCodes,
    MessageType,
    Name,
    Names,
    Number,
    OneOf,
    Percent,
    Text,
    Type,
    Types,
    Variable,
    Whole,
    YesNo,
)
from bakemesh.protocol.builder.spec.component import SERVICES

MAX_MS: Final = 10**12  # some 31 years
MAX_DATA_BYTES: Final = 4 << 20
PAYLOAD_MARGIN: Final = 64 << 10  # what a Data message holds beside its data


@dataclass(frozen=True, slots=True)
class Attribute:
    """What an attribute may be. `references`: `${…}` is expanded in it."""

    type: Type
    default: Any = None
    required: bool = False
    references: bool = False


class Content(Enum):
    """What may stand directly inside an element beside its children."""

    NOTHING = "nothing"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Element:
    """An element: its attributes and children by name. `many`: it may stand more than once in its parent.

    `ignored` children are those of published specs that mean nothing here: passed over, whatever they hold.
    """

    name: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    children: Mapping[str, Element] = field(default_factory=dict)
    content: Content = Content.NOTHING
    references: bool = False  # in its text
    many: bool = True
    required: bool = False
    ignored: frozenset[str] = frozenset()


def _by_name(*elements: Element) -> dict[str, Element]:
    return {element.name: element for element in elements}


def _ms(low: int = 0, default: int | None = None) -> Attribute:
    return Attribute(Whole(low, MAX_MS, "milliseconds"), default)


_TEXT = Attribute(Text(filled=True), references=True)

# on the root and on every step, where they override the root's
_SHARED: dict[str, Attribute] = {
    "timeout-ms": _ms(),
    "status-interval-ms": _ms(),
    "data-interval-ms": _ms(),
    "max-data-bytes": Attribute(Whole(1, MAX_DATA_BYTES, "bytes")),
}
_ROOT: dict[str, Attribute] = {
    "name": Attribute(Name("Recipe")),
    "expires-ms": _ms(default=0),
    **_SHARED,
    "on-failure": Attribute(
        OneOf(("fail", "hold"), hint=" ('continue' is for single steps)"),
    ),
}
_STEP: dict[str, Attribute] = {
    "name": Attribute(Name("step")),
    **_SHARED,
    "on-failure": Attribute(OneOf(("fail", "hold", "continue"))),
    "retryable": Attribute(YesNo(), False),
    "retries": Attribute(Whole(0, 1_000_000), 0),
    "retry-delay-ms": _ms(default=0),
    "weight": Attribute(Whole(1, 1_000_000), 1),
}
_PROCESS: dict[str, Attribute] = {
    **_STEP,
    "cwd": Attribute(Text(), references=True),
    "stdin": Attribute(Text(), references=True),
    "stdin-entry": Attribute(Name("entry")),
    "success-codes": Attribute(ExitCodes(), frozenset({0})),
    "stderr": Attribute(OneOf(("merge",), hint=" (left out: a stream of its own)")),
    "progress": Attribute(Percent()),
}
ENV: Final = Element(
    "env",
    {
        "name": Attribute(Variable(), required=True),
        "value": Attribute(Text(), required=True, references=True),
    },
)
_STDIN = Element("stdin", content=Content.TEXT, references=True, many=False)

CLI: Final = Element(
    "cli",
    {**_PROCESS, "command": _TEXT, "shell": Attribute(YesNo(), False)},
    _by_name(Element("arg", content=Content.TEXT, references=True), ENV, _STDIN),
)
CODE: Final = Element(
    "code",
    {**_PROCESS, "language": Attribute(OneOf(("python", "sh")), required=True)},
    _by_name(ENV, _STDIN),
    content=Content.TEXT,
)
REQUESTDATA: Final = Element(
    "requestdata", {**_STEP, "entry": Attribute(Name("entry")), "into": Attribute(Text(), references=True)}
)
ATTACH: Final = Element(
    "attach",
    {**_STEP, "module": Attribute(Name("module"), required=True), "follow": Attribute(YesNo(), False)},
)

_MODULE: dict[str, Attribute] = {
    "name": Attribute(Name("module"), required=True),
    "supervisor": Attribute(YesNo(), False),
    "restart": Attribute(OneOf(("always", "on-failure", "never"))),
    "max-restarts": Attribute(Whole(0, 1_000_000)),
    "restart-window-ms": _ms(1),
    "shutdown-ms": _ms(),
    "ready-ms": _ms(),
    "depends": Attribute(Names("module")),
    "memory-max-bytes": Attribute(Whole(1, 1 << 50, "bytes")),
    "cpu-share": Attribute(Number(100_000)),
}
_MODULE_CHILDREN = _by_name(
    Element("description", content=Content.TEXT, many=False),
    Element(
        "crank",
        {
            "script": _TEXT,
            "function": Attribute(Text(filled=True)),
            "command": _TEXT,
            "service": Attribute(OneOf(SERVICES)),
            "source-of": Attribute(Name("module")),
        },
        content=Content.TEXT,  # the script's source, where it travels with the spec
        many=False,
        required=True,
    ),
    Element(
        "parameter",
        {
            "name": Attribute(Text(filled=True), required=True),
            "type": Attribute(OneOf(("Integer", "Float", "String"), fold=True), required=True),
            "value": Attribute(Text(), required=True, references=True),
        },
    ),
    Element(
        "trigger",
        {
            "name": Attribute(Name("trigger"), required=True),
            "type": Attribute(MessageType(wildcards=True), required=True),
            "after": _ms(default=0),
            "durable": Attribute(Types(), ()),
        },
    ),
    Element(
        "post",
        {
            "name": Attribute(Name("post"), required=True),
            "type": Attribute(MessageType(), required=True),
            "durable": Attribute(YesNo(), False),
        },
    ),
    Element(
        "health",
        {
            "command": _TEXT,
            "subject": Attribute(MessageType()),
            "interval-ms": _ms(1),
            "timeout-ms": _ms(1),
            "misses": Attribute(Whole(1, 1_000)),
        },
        many=False,
    ),
    ENV,
)
# what else published specs hold: passed over, and in a PsySpec warned of by name
PUBLISHED: Final = frozenset(
    {
        *("catalog", "context", "executable", "library", "phase", "psyprobe", "query"),
        *("retrieve", "setup", "signal", "space", "stream", "whiteboard"),
    }
)
MODULE: Final = Element(
    "module",
    {**_STEP, "wait": Attribute(YesNo(), True), **_MODULE},
    _MODULE_CHILDREN,
    ignored=PUBLISHED,
)
MODULE_STEP: Final = frozenset({*_STEP, "wait"} - {"name"})  # what it has as a step
# as an element of a PsySpec: no step, but with a node
PSYSPEC_MODULE: Final = Element(
    "module", {**_MODULE, "node": Attribute(Name("Node"))}, _MODULE_CHILDREN, ignored=PUBLISHED
)
PSYSPEC_SUPERVISOR: Final = Element(
    "supervisor",
    {name: attribute for name, attribute in PSYSPEC_MODULE.attributes.items() if name != "supervisor"},
    _MODULE_CHILDREN,
    ignored=PUBLISHED,
)

# The children of a recipe are its steps; they are read by `load`, each by its own table.
RECIPE: Final = Element("recipe", _ROOT)
INNER: Final = Element(
    "recipe",
    {**_ROOT, **_STEP, "name": Attribute(Name("Recipe")), "node": Attribute(Name("Node"), required=True)},
)
# what an inner <recipe> says about itself as a step of the outer one, and the other node is not told
OUTER_ONLY: Final = frozenset({"node", "on-failure", "retryable", "retries", "retry-delay-ms", "weight"})
# what it takes over from the outer root where it says nothing itself
HANDED_DOWN: Final = ("status-interval-ms", "data-interval-ms", "max-data-bytes")

STEPS: Final[dict[str, Element]] = _by_name(CLI, CODE, REQUESTDATA, MODULE, ATTACH, INNER)
EVERYWHERE: Final[tuple[Element, ...]] = (
    *STEPS.values(),
    *CLI.children.values(),
    *_MODULE_CHILDREN.values(),
)  # for "`into` belongs to <requestdata>"
