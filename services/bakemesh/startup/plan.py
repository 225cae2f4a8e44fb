"""A PsySpec as text, and what the core and the bring-ups need of it."""

from __future__ import annotations

from dataclasses import dataclass

from bakemesh.protocol.psyspec import Group, PsySpec, bringup, groups, load_psyspec
from bakemesh.startup.state import Dispatch, Goal, Spec


@dataclass(frozen=True, slots=True)
class Plan:
    """One PsySpec, read for one node."""

    text: str
    psyspec: PsySpec
    groups: tuple[Group, ...]

    @property
    def spec(self) -> Spec:
        """What the core compares and places."""
        goals = tuple(
            Goal(
                group.node,
                group.node_id,
                group.local,
                group.digest,
                {module.spec.name: module.spec.digest for module in group.modules},
            )
            for group in self.groups
        )
        return Spec(self.psyspec.name, self.psyspec.digest, goals)

    def recipe(self, wanted: Dispatch) -> str | None:
        """The bring-up's XML; None where this plan has no such group (any more)."""
        for group in self.groups:
            digests = {module.spec.name: module.spec.digest for module in group.modules}
            if group.digest == wanted.goal and wanted.parts.items() <= digests.items():
                return bringup(group, only=wanted.parts)
        return None


def read_plan(text: str, node: str, node_id: str, *, file: str = "psyspec") -> Plan:
    """The plan of a bundled PsySpec. Raises PsySpecRefused."""
    psyspec = load_psyspec(text, file=file)
    return Plan(text, psyspec, groups(psyspec, node, node_id))
