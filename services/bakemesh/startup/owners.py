"""Whose components stand on each node, by its last SystemStatus: what a failed bring-up is most likely about.

A component is its maker's alone; a PsySpec that was given to two Startup Supervisors fails at the second one
for ever. Left out: doing anything about it. Who is right only people know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from bakemesh.protocol.rights import startup_name

_STARTUP = startup_name("")
_SHOWN = 5


class Owners:
    """By node. `own`: this Supervisor's name."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._found: dict[str, dict[str, str]] = {}

    def heard(self, node_id: str, components: Iterable[Mapping[str, Any]]) -> None:
        """What a node's SystemStatus says."""
        others = {str(each.get("name")): str(each.get("owner") or "") for each in components}
        self._found[node_id] = {name: owner for name, owner in others.items() if owner not in ("", self._own)}

    def advice(self, node_id: str, wanted: Collection[str]) -> str:
        """What to say of a bring-up of `wanted` that failed there; "" where all of it is ours or nobody's."""
        found = self._found.get(node_id, {})
        taken = {name: found[name] for name in wanted if name in found}
        if not taken:
            return ""
        owners = sorted(set(taken.values()))
        names = [*taken][:_SHOWN]
        more = f" and {len(taken) - _SHOWN} more" if len(taken) > _SHOWN else ""
        said = f"{', '.join(names)}{more} there belong to {', '.join(owners)}"
        if any(owner.startswith(_STARTUP) for owner in owners):
            return (
                f"{said}, which was given a PsySpec with them, too; give it to one `up` and start the others"
                " without, or take them out of the other one's (`bakemesh apply`, --node its node)"
            )
        return f"{said}; name them otherwise, or remove those (`bakemesh components remove`)"
