"""The grammar of a PsySpec beyond its modules, as tables; a module's is in `builder.spec.grammar`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bakemesh.protocol.builder.spec.attributes import Name, Names, Text
from bakemesh.protocol.builder.spec.document import Limits
from bakemesh.protocol.builder.spec.grammar import PSYSPEC_MODULE, PSYSPEC_SUPERVISOR, Attribute, Element

LIMITS: Final = Limits(xml_bytes=4 << 20, elements=100_000, what="PsySpec")
MOST_NODES: Final = 1_000
MOST_MODULES: Final = 10_000
DEFAULT_NAME: Final = "psyspec"

VARIABLE: Final = Element(
    "variable",
    {"name": Attribute(Text(filled=True), required=True), "value": Attribute(Text(), required=True)},
)
INCLUDE: Final = Element("include", {"file": Attribute(Text(filled=True), required=True)})
NODE: Final = Element(
    "node", {"name": Attribute(Name("Node"), required=True), "id": Attribute(Name("NodeID"))}
)
COHORT: Final = Element(
    "cohort",
    {
        "name": Attribute(Name("cohort"), required=True),
        "nodes": Attribute(Names("Node"), required=True),
    },
)
CHILDREN: Final[dict[str, Element]] = {
    element.name: element for element in (VARIABLE, INCLUDE, NODE, PSYSPEC_MODULE, PSYSPEC_SUPERVISOR, COHORT)
}
PSYSPEC: Final = Element("psySpec", {"name": Attribute(Name("PsySpec"), DEFAULT_NAME)}, CHILDREN)
# what an included file may have as its root; its attributes say nothing
INCLUDED: Final = replace(PSYSPEC, name="include")
