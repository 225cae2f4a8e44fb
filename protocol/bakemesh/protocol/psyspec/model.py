"""A PsySpec as frozen values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.spec.component import ComponentSpec
from bakemesh.protocol.builder.spec.problems import Problem
from bakemesh.protocol.errors import ProtocolError


class PsySpecRefused(ProtocolError):
    """Raised when a PsySpec cannot be used as written: `problems`, at least one, and the Result's `code`."""

    def __init__(self, problems: Iterable[Problem], code: Code = Code.INVALID_PSYSPEC) -> None:
        self.problems = in_order(problems)
        self.code: Code = code
        super().__init__("\n".join(map(str, self.problems)))


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """File by file, as they turned up, each from its first line on."""
    given = tuple(problems)
    files = {problem.file: at for at, problem in reversed(list(enumerate(given)))}
    return tuple(sorted(given, key=lambda problem: (files[problem.file], problem.line)))


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node of the system. Without an id it is known by its name alone."""

    name: str
    node_id: str | None = None


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """A module and the node (its name) that it runs on; None: the node whose PsySpec it is."""

    spec: ComponentSpec
    node: str | None
    line: int
    file: str


@dataclass(frozen=True, slots=True)
class Cohort:
    """A named set of nodes, by their names."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PsySpec:
    """The whole. Names of modules are unique in it, across nodes. `warnings` refuse nothing."""

    name: str
    nodes: tuple[NodeEntry, ...]
    modules: tuple[ModuleEntry, ...]
    cohorts: tuple[Cohort, ...]
    warnings: tuple[Problem, ...]

    @property
    def digest(self) -> str:
        """The same for PsySpecs that mean the same: blanks and comments do not count, scripts do."""
        return digest_of(
            [
                self.name,
                [[node.name, node.node_id] for node in self.nodes],
                [[module.spec.digest, module.node] for module in self.modules],
                [[cohort.name, *cohort.nodes] for cohort in self.cohorts],
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The modules of one node, in the order of the PsySpec. `local`: the node whose PsySpec it is."""

    node: str
    node_id: str | None
    modules: tuple[ModuleEntry, ...]
    local: bool

    @property
    def digest(self) -> str:
        """The same where the same modules are to run."""
        return digest_of([module.spec.digest for module in self.modules])


def digest_of(told: object) -> str:
    """16 hexadecimal digits of what JSON can hold."""
    return hashlib.sha256(json.dumps(told, ensure_ascii=False).encode()).hexdigest()[:16]
