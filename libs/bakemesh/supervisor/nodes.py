"""Which node a recipe goes to: names, ids and `any`, looked up in the nodes bucket.

Guarantees: a name or id that nobody reported is an error that lists the known ones; `any` is the least
loaded node that is alive and does not drain. Left out: whether the node still is what its last SystemStatus
says; the recipe's Result tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bakemesh.protocol.builder.messages import SystemStatus
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.message import Received, decode
from bakemesh.supervisor.errors import AmbiguousNode, NodeUnknown, NoNodeAvailable

ANY_NODE = "any"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as its last SystemStatus told it. `alive`: its Builder holds its claim, which lives 10 s."""

    name: str
    node_id: str
    alive: bool
    status: SystemStatus
    reported: int  # µs since the epoch, by the node's clock

    @property
    def label(self) -> str:
        """`name`, or `name=id` where they differ."""
        return self.name if self.name == self.node_id else f"{self.name}={self.node_id}"


def read_nodes(entries: Mapping[str, bytes]) -> list[NodeInfo]:
    """The nodes in the bucket's entries (`<NodeID>` and `<NodeID>.claim`); values that are no SystemStatus
    are left out.
    """
    nodes = []
    for key, value in sorted(entries.items()):
        if "." in key:  # claims and locks
            continue
        received = _system_status(value)
        if received is None or not isinstance(status := received.message, SystemStatus):
            continue
        if status.node_id == key:
            nodes.append(NodeInfo(status.node, key, f"{key}.claim" in entries, status, received.created))
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
        told = ", ".join(f"{node.label} {'draining' if node.alive else 'gone'}" for node in nodes)
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
