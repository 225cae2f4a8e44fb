"""The nodes of a mesh: what state each is in, and which one a recipe goes to (names, ids and `any`).

    ready ── Drain ──→ draining ── nothing runs ──→ drained     heard of within 15 s, and it has its claim
    unresponsive                                                three SystemStatus missed, or its claim lost
    gone                                                        nothing for 60 s

Guarantees: a name or id that nobody reported is an error that lists the known ones; `any` is the least
loaded node that is alive and does not drain. Left out: whether the node still is what its last SystemStatus
says; the recipe's Result tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bakemesh.protocol.builder.messages import SystemStatus
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.message import Received, decode
from bakemesh.supervisor.errors import AmbiguousNode, NodeUnknown, NoNodeAvailable

ANY_NODE = "any"
MISSED_S, GONE_S = 15.0, 60.0  # SystemStatus comes every 5 s
_AT_REST = frozenset({"stopped", "ended"})  # states of components that do not run and will not by themselves


class NodeState(StrEnum):
    """What a node is good for."""

    READY = "ready"
    DRAINING = "draining"
    DRAINED = "drained"
    UNRESPONSIVE = "unresponsive"
    GONE = "gone"


def node_state(status: SystemStatus, age_s: float, *, claimed: bool | None = None) -> NodeState:
    """The state of a node whose last SystemStatus is `age_s` old, by one clock. `claimed`: whether its
    Builder holds its claim; None where that is not known.
    """
    if age_s >= GONE_S:
        return NodeState.GONE
    if age_s >= MISSED_S or claimed is False:
        return NodeState.UNRESPONSIVE
    if not status.draining:
        return NodeState.READY
    return NodeState.DRAINED if is_drained(status) else NodeState.DRAINING


def is_drained(status: SystemStatus) -> bool:
    """Whether a draining node has nothing left that runs."""
    return bool(status.draining) and not (status.bakes or status.queued or running_components(status))


def running_components(status: SystemStatus) -> list[str]:
    """The names of its components that run, or will by themselves."""
    return [str(each.get("name", "?")) for each in status.components if each.get("state") not in _AT_REST]


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as its last SystemStatus told it. `alive`: its Builder holds its claim, which lives 10 s.

    `age_s`: how long ago it was said, by the clock of the server that keeps it; 0 where that is not known.
    """

    name: str
    node_id: str
    alive: bool
    status: SystemStatus
    reported: int  # µs since the epoch, by the node's clock
    age_s: float = 0.0

    @property
    def state(self) -> NodeState:
        """When it was looked up."""
        return node_state(self.status, self.age_s, claimed=self.alive)

    @property
    def label(self) -> str:
        """`name`, or `name=id` where they differ."""
        return self.name if self.name == self.node_id else f"{self.name}={self.node_id}"


def read_nodes(entries: Mapping[str, bytes], ages_s: Mapping[str, float] | None = None) -> list[NodeInfo]:
    """The nodes in the bucket's entries (`<NodeID>` and `<NodeID>.claim`); values that are no SystemStatus
    are left out. `ages_s`: of the entries.
    """
    nodes, ages = [], ages_s or {}
    for key, value in sorted(entries.items()):
        if "." in key:  # claims and locks
            continue
        received = _system_status(value)
        if received is None or not isinstance(status := received.message, SystemStatus):
            continue
        if status.node_id == key:
            alive = f"{key}.claim" in entries
            nodes.append(NodeInfo(status.node, key, alive, status, received.created, ages.get(key, 0.0)))
    return nodes


def find(nodes: Iterable[NodeInfo], wanted: str) -> NodeInfo:
    """The node with this id, else the one with this name. Raises NodeUnknown, AmbiguousNode."""
    nodes = list(nodes)
    for node in nodes:
        if node.node_id == wanted:
            return node
    named = [node for node in nodes if node.name == wanted]
    alive = [node for node in named if node.alive]
    if len(alive) == 1:  # a node that came back under another id leaves its old entry behind
        return alive[0]
    if len(named) > 1:
        raise AmbiguousNode(wanted, (node.node_id for node in named))
    if not named:
        raise NodeUnknown(wanted, (node.label for node in nodes))
    return named[0]


def by_load(nodes: Iterable[NodeInfo], placed: Mapping[str, int] | None = None) -> list[NodeInfo]:
    """Nodes that take recipes, least loaded first. Raises NoNodeAvailable where there is none.

    `placed`: recipes sent to a node since its last report, so that a burst spreads before the next one
    arrives.
    """
    nodes = list(nodes)
    usable = [node for node in nodes if node.alive and not node.status.draining]
    if not usable:
        told = ", ".join(f"{node.label} {node.state}" for node in nodes)
        raise NoNodeAvailable(f"no node takes recipes: {told or 'no node has reported yet'}")
    sent = placed or {}

    def load(node: NodeInfo) -> tuple[float, str]:
        busy = node.status.bakes + node.status.queued + sent.get(node.node_id, 0)
        return busy + node.status.load, node.node_id

    return sorted(usable, key=load)


def _system_status(value: bytes) -> Received | None:
    try:
        return decode(value)
    except MessageError:
        return None
