"""Operating nodes and components: the components of a mesh as they are reported, and requests to Builders.

A refusal is a Result with `accepted` false, not an exception. Left out: following what was asked for;
SystemStatus tells how far it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bakemesh.protocol import subjects
from bakemesh.protocol.builder.messages import Result
from bakemesh.protocol.builder.node import (
    ComponentControl,
    ComponentVerb,
    DownNode,
    DrainNode,
    NodeControl,
    NodeVerb,
    RemoveComponent,
    RestartComponent,
    ResumeNode,
    StartComponent,
    StopComponent,
)
from bakemesh.supervisor.control import ask
from bakemesh.supervisor.errors import AmbiguousComponent, ComponentUnknown
from bakemesh.supervisor.nodes import NodeInfo

if TYPE_CHECKING:
    from bakemesh.bus import Bus

# The Result comes as soon as the control is journaled; this is for a Builder or a line that is slow.
CONTROL_S = 15.0

COMPONENT: Mapping[ComponentVerb, type[ComponentControl]] = {
    ComponentVerb.RESTART: RestartComponent,
    ComponentVerb.STOP: StopComponent,
    ComponentVerb.START: StartComponent,
    ComponentVerb.REMOVE: RemoveComponent,
}
NODE: Mapping[NodeVerb, type[NodeControl]] = {
    NodeVerb.DRAIN: DrainNode,
    NodeVerb.RESUME: ResumeNode,
    NodeVerb.DOWN: DownNode,
}


@dataclass(frozen=True, slots=True)
class ComponentInfo:
    """A component as its node's last SystemStatus told it. `since`: µs since the epoch, by the node's
    clock.
    """

    name: str
    node: str
    node_id: str
    state: str
    ready: bool
    restarts: int
    reason: str
    since: int
    pid: int | None
    kind: str
    owner: str
    digest: str
    watch: Mapping[str, str] = field(default_factory=dict)


def components(nodes: Iterable[NodeInfo]) -> list[ComponentInfo]:
    """Those of all nodes, by node and name."""
    found = [component(entry, node.name, node.node_id) for node in nodes for entry in node.status.components]
    return sorted(found, key=lambda each: (each.node, each.node_id, each.name))


def component(entry: Mapping[Any, Any], node: str, node_id: str) -> ComponentInfo:
    """One out of a SystemStatus; whatever a newer or older Builder says otherwise reads as empty."""

    def text(key: str) -> str:
        value = entry.get(key)
        return value if isinstance(value, str) else ""

    def number(key: str) -> int:
        value = entry.get(key)
        return value if isinstance(value, int) else 0

    watch = entry.get("watch")
    return ComponentInfo(
        name=text("name"),
        node=node,
        node_id=node_id,
        state=text("state"),
        ready=number("ready") == 1,
        restarts=number("restarts"),
        reason=text("reason"),
        since=number("since"),
        pid=number("pid") or None,
        kind=text("kind"),
        owner=text("owner"),
        digest=text("digest"),
        watch={str(key): str(value) for key, value in watch.items()} if isinstance(watch, Mapping) else {},
    )


def find_component(found: Iterable[ComponentInfo], name: str, node_id: str | None) -> ComponentInfo:
    """The one of that name, on that node where one is given. Raises ComponentUnknown, AmbiguousComponent."""
    known = [each for each in found if node_id in (None, each.node_id)]
    named = [each for each in known if each.name == name]
    if not named:
        raise ComponentUnknown(name, (f"{each.name} on {each.node}" for each in known))
    if len(named) > 1:
        raise AmbiguousComponent(name, (each.node_id for each in named))
    return named[0]


async def control_component(
    bus: Bus, issuer: str, node_id: str, verb: ComponentVerb, name: str, timeout: float = CONTROL_S
) -> Result:
    """Raises NodeUnreachable, ResultTimeout, AccessDenied."""
    message = COMPONENT[verb](component=name, issuedby=issuer)
    return await ask(bus, issuer, node_id, name, message, f"{verb} of component {name}", timeout)


async def control_node(
    bus: Bus,
    issuer: str,
    node_id: str,
    verb: NodeVerb,
    timeout_ms: int | None = None,
    timeout: float = CONTROL_S,
) -> Result:
    """Raises NodeUnreachable, ResultTimeout, AccessDenied."""
    message = NODE[verb](issuedby=issuer, timeoutms=timeout_ms)
    return await ask(bus, issuer, node_id, subjects.NO_KEY, message, f"{verb} of node {node_id}", timeout)
