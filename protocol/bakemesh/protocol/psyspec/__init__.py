"""A system's description in XML, the PsySpec: read, checked whole, and made into one bring-up recipe a node.

    bundle ── one text, files put in ──→ load_psyspec ──→ PsySpec ── groups ──→ Group ── bringup ──→ recipe

`grammar` is the tables, `variables` is `%Name%`, `bundling` puts files together, `load` reads and checks,
`order` knows what depends on what, `placing` groups by node, `bringup` writes recipes, `model` is the result.
Pure: who calls reads the files. Source: protocol/builder-v1.md, "PsySpecs".
"""

from bakemesh.protocol.psyspec.bringup import bringup, element_of
from bakemesh.protocol.psyspec.bundling import bundle, read_psyspec
from bakemesh.protocol.psyspec.grammar import LIMITS
from bakemesh.protocol.psyspec.load import load_psyspec
from bakemesh.protocol.psyspec.model import (
    Cohort,
    Group,
    ModuleEntry,
    NodeEntry,
    PsySpec,
    PsySpecRefused,
)
from bakemesh.protocol.psyspec.placing import groups, unsettled

__all__ = [
    "LIMITS",
    "Cohort",
    "Group",
    "ModuleEntry",
    "NodeEntry",
    "PsySpec",
    "PsySpecRefused",
    "bringup",
    "bundle",
    "element_of",
    "groups",
    "load_psyspec",
    "read_psyspec",
    "unsettled",
]
