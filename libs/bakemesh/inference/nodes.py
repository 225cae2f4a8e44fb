"""The nodes that serve models, as their Status tells: who may be asked, and who is gone. Pure.

    heard ──── 6 s without a Status, nobody listens there ───→ silent     not asked; what it had is lost
    heard ──── a Status of another run ──────────────────────→ heard      what the old run had is lost
    silent ─── a Status ─────────────────────────────────────→ heard

Guarantees: a node that is draining, down or silent is never a candidate; a loss is told once. Left out: which
of the candidates is taken (`choosing`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from bakemesh.inference.choosing import LOAD_S, Forecast, Load
from bakemesh.protocol.inference.answers import SynapseStatus

SILENT_S = 6.0  # three Status missed
FORGOTTEN_S = 600.0
SETTLED_S = 2.5  # a Status comes every 2 s: after so long every node has been heard of
NOBODY = "no synapse module is heard of; start one (`bakemesh synapse`), or see `bakemesh nodes`"
_TAKES_WORK = frozenset({"ok", "degraded"})


@dataclass(slots=True)
class Node:
    """A node with a synapse module. `heard_at`: its last Status, by the monotonic clock."""

    node_id: str
    name: str = ""
    run: str = ""
    serial: int = -1
    state: str = "ok"
    models: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    heard_at: float = float("-inf")
    silent: bool = True
    forecast: Forecast = field(default_factory=Forecast)

    @property
    def takes_work(self) -> bool:
        """Whether it may be chosen."""
        return not self.silent and self.state in _TAKES_WORK

    @property
    def label(self) -> str:
        """`name`, or `name=id` where they differ."""
        return self.node_id if self.name in ("", self.node_id) else f"{self.name}={self.node_id}"


class Nodes:
    """All that were heard of."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    def heard(self, status: SynapseStatus, now: float) -> str | None:
        """Takes a Status. Gives the run that ended where it tells of another one."""
        node = self._nodes.setdefault(status.node_id, Node(status.node_id))
        ended = node.run if node.run not in ("", status.run) else None
        if ended is None and node.run and status.serial <= node.serial:
            return None  # an older one that took another way
        if ended is not None:
            node.forecast = Forecast()
        node.name, node.run, node.serial, node.state = status.node, status.run, status.serial, status.state
        node.models, node.loaded = frozenset(status.models), frozenset(status.loaded)
        node.heard_at, node.silent = now, False
        node.forecast.told(now, status.waitms / 1000, status.backlog, status.rate, status.lanes)
        return ended

    def fallen_silent(self, now: float) -> list[str]:
        """Nodes that are silent since the last look; old ones are forgotten."""
        fallen = []
        for node in list(self._nodes.values()):
            if not node.silent and now - node.heard_at > SILENT_S:
                node.silent = True
                fallen.append(node.node_id)
            elif now - node.heard_at > FORGOTTEN_S:
                del self._nodes[node.node_id]
        return fallen

    def has(self, node_id: str, alias: str) -> None:
        """The node said so itself; its next Status does too, a moment later."""
        if node := self._nodes.get(node_id):
            node.models |= {alias}

    def unreachable(self, node_id: str) -> None:
        """Nobody listens there: not asked again before its next Status."""
        if node := self._nodes.get(node_id):
            node.silent = True

    def resumed(self, now: float) -> None:
        """Nothing could be heard until now: silence counts from here."""
        for node in self._nodes.values():
            if not node.silent:
                node.heard_at = now

    def get(self, node_id: str) -> Node | None:
        """The node with this id."""
        return self._nodes.get(node_id)

    def all(self) -> list[Node]:
        """Every node that is not silent, by id."""
        return sorted(
            (node for node in self._nodes.values() if not node.silent), key=lambda each: each.node_id
        )

    def named(self, wanted: str) -> list[Node]:
        """The node with this id, else those of this name."""
        if wanted in self._nodes:
            return [self._nodes[wanted]]
        return [node for node in self._nodes.values() if node.name == wanted]

    def candidates(self, alias: str, without: Collection[str] = ()) -> list[Node]:
        """Nodes that take work and have the model, but those in `without`."""
        return [
            node
            for node in self._nodes.values()
            if node.takes_work and alias in node.models and node.node_id not in without
        ]

    def why_none(self, alias: str) -> tuple[bool, str]:
        """Why nobody can be asked, in words; and whether it is the alias: no node at all has it."""
        known = self.all()
        if not known:
            return False, NOBODY
        having = [node for node in known if alias in node.models]
        if having:
            told = ", ".join(f"{node.label} is {node.state}" for node in having)
            return False, f"no node takes work for model {alias!r} now: {told}"
        there = sorted({model for node in known for model in node.models})
        listed = ", ".join(there[:50]) if there else "none at all"
        places = ", ".join(node.label for node in known[:50])
        return True, f"no node has a model {alias!r}; on {places} there are: {listed}"


def load_of(node: Node, alias: str, now: float, *, bulk: bool) -> Load:
    """The node as `choosing` sees it."""
    load = node.forecast.load(node.node_id, now, bulk=bulk)
    return load if alias in node.loaded else replace(load, wait_s=load.wait_s + LOAD_S)
