"""The whole system as `bakemesh watch` holds it: what was heard, and what of it is news. Pure.

    SystemStatus, Performance, Bake.Status, what the stores held ──→ View ──→ events, in the order they happen

An event is a name and its fields, the same for people and machines. What was heard already is no news:
a heartbeat that says the same again, a Status that a reconnect brings twice. Time is an argument, monotonic.
Left out: drawing it (`board`), getting it (`verbs.watch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bakemesh.protocol.builder.messages import (
    TERMINAL_TYPES,
    BakeOutcome,
    BakeStatus,
    Performance,
    SystemStatus,
)
from bakemesh.supervisor.nodes import NodeInfo, NodeState, node_state
from bakemesh.supervisor.operate import ComponentInfo, component

ENDED_S = 10.0  # an ended bake stays in sight for so long
BAKES = 10_000
SLACK_S = 1.0  # between hearing a message and reading the same one out of the bucket
Key = tuple[str, str]  # (Supervisor, RecipeID)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `name`: node, component, bake, performance."""

    name: str
    fields: Mapping[str, Any]


@dataclass(slots=True)
class Node:
    """A node. `heard`: when its SystemStatus was said, on our clock."""

    status: SystemStatus
    heard: float
    state: NodeState
    performance: Performance | None = None
    components: dict[str, ComponentInfo] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name."""
        return self.status.node


@dataclass(slots=True)
class Bake:
    """A bake. `serial` 0: out of a list, of which any Status that is heard is newer."""

    recipe_id: str
    supervisor: str
    node: str
    node_id: str
    state: str
    pct: int
    summary: str
    serial: int = 0
    heard: float = 0.0
    ended: float | None = None

    def fields(self) -> dict[str, Any]:
        """Stable names, those of `bakemesh bakes`."""
        return {
            "recipeid": self.recipe_id,
            "supervisor": self.supervisor,
            "node": self.node,
            "nodeid": self.node_id,
            "state": self.state,
            "pct": self.pct,
            "summary": self.summary,
        }


class View:
    """All of it."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.bakes: dict[Key, Bake] = {}

    # -- nodes

    def status(
        self, status: SystemStatus, now: float, age_s: float = 0.0, claimed: bool | None = None
    ) -> list[Event]:
        """A SystemStatus that was said `age_s` ago. One that is older than what is known is nothing."""
        node, heard = self.nodes.get(status.node_id), now - age_s
        if node is not None and heard < node.heard - SLACK_S:
            return []
        before = None if node is None else _shown(node)
        if node is None:
            node = self.nodes[status.node_id] = Node(status, heard, NodeState.READY)
        node.status, node.heard = status, max(heard, node.heard)
        node.state = node_state(status, age_s, claimed=claimed)
        events = self._components(node)
        return [*([_node_event(node)] if _shown(node) != before else []), *events]

    def looked(self, nodes: Iterable[NodeInfo], now: float) -> list[Event]:
        """What the nodes bucket holds."""
        return [
            event for each in nodes for event in self.status(each.status, now, each.age_s, claimed=each.alive)
        ]

    def performance(self, said: Performance) -> list[Event]:
        """A Performance, of a node that is known."""
        node = self.nodes.get(said.node_id)
        if node is None:
            return []
        node.performance = said
        return [Event("performance", {"node": said.node, "nodeid": said.node_id, **_numbers(said)})]

    def _components(self, node: Node) -> list[Event]:
        status, events = node.status, []
        found = [component(each, status.node, status.node_id) for each in status.components]
        for each in found:
            before = node.components.get(each.name)
            if before is None or (before.state, before.restarts, before.reason) != (
                each.state,
                each.restarts,
                each.reason,
            ):
                events.append(_component_event(each, each.state))
        gone = node.components.keys() - {each.name for each in found}
        events += [_component_event(node.components[name], "removed") for name in sorted(gone)]
        node.components = {each.name: each for each in found}
        return events

    # -- bakes

    def bake(self, status: BakeStatus, now: float) -> list[Event]:
        """A Status or outcome. A serial that was counted is nothing; neither is a heartbeat without news."""
        identity = status.identity
        bake = self.bakes.get(identity.key)
        if bake is not None and status.serial <= bake.serial:
            return []
        state = state_after(status, "running" if bake is None else bake.state)
        news = bake is None or (bake.state, bake.pct, bake.summary) != (state, status.pct, status.summary)
        ended = now if status.final and status.type in TERMINAL_TYPES else None
        made = Bake(
            status.recipe_id,
            status.supervisor,
            status.node,
            status.node_id,
            state,
            status.pct,
            status.summary,
            status.serial,
            now,
            ended,
        )
        self.bakes.pop(identity.key, None)
        self.bakes[identity.key] = made
        while len(self.bakes) > BAKES:
            self.bakes.pop(next(iter(self.bakes)))
        return [Event("bake", made.fields())] if news else []

    def listed(self, rows: Iterable[Bake], asked: float, now: float) -> list[Event]:
        """What the stores held when they were asked, at `asked`: the newest bakes, and every one that runs. A
        bake that is not among them and was not heard of since has ended, and its end was missed.
        """
        events, there = [], set()
        for row in rows:
            key = (row.supervisor, row.recipe_id)
            there.add(key)
            known = self.bakes.get(key)
            if known is not None and (known.heard >= asked or known.ended is not None):
                continue
            ended = row.state in ENDED_STATES
            if known is None and ended:
                continue  # of before our time
            if known is None or (known.state, known.pct, known.summary) != (row.state, row.pct, row.summary):
                events.append(Event("bake", row.fields()))
            row.serial = 0 if known is None else known.serial
            row.heard, row.ended = now, now if ended else None
            self.bakes[key] = row
        for key in [key for key, bake in self.bakes.items() if bake.heard < asked and key not in there]:
            if self.bakes[key].ended is None:
                del self.bakes[key]
        return events

    # -- time

    def tick(self, now: float) -> list[Event]:
        """What has become of those that say nothing; ended bakes go out of sight."""
        events = []
        for node in self.nodes.values():
            age = now - node.heard
            state = node_state(node.status, age)
            # A claim that is lost is seen in the bucket alone: time makes nothing better.
            if state is not node.state and state in (NodeState.UNRESPONSIVE, NodeState.GONE):
                node.state = state
                events.append(_node_event(node))
        for key in [key for key, bake in self.bakes.items() if bake.ended and now - bake.ended > ENDED_S]:
            del self.bakes[key]
        return events


ENDED_STATES = frozenset({"succeeded", "failed", "cancelled"})
_OUTCOMES = {
    "Success": "succeeded",
    "Failed": "failed",
    "Cancelled": "cancelled",
    "Paused": "paused",
    "Restarted": "running",
}


def state_after(status: BakeStatus, before: str) -> str:
    """A bake's state once this is heard: a rest lasts until it is said that it is over."""
    if isinstance(status, BakeOutcome):
        if status.code == "held" and status.type not in TERMINAL_TYPES:
            return "held"
        return _OUTCOMES.get(status.type.rpartition(".")[2], before)
    if status.kind in ("start", "step"):
        return before if before in ("paused", "held") else "running"
    if before == "running" and status.kind == "interim" and status.summary.startswith("queued"):
        return "queued"
    return before


def line(event: Event) -> str:
    """An event as a line for people."""
    of = event.fields
    match event.name:
        case "node":
            parts = f"{of['bakes']} bakes, {of['queued']} queued"
            if of["components"]:
                parts += f", {of['ready']} of {of['components']} components ready"
            return f"node {of['node']} {of['state']}: {parts}"
        case "component":
            reason = f": {_first(of['reason'])}" if of["reason"] else ""
            return f"component {of['name']} on {of['node']} {of['state']}{reason}"
        case "bake":
            pct = f" {of['pct']}%" if of["pct"] >= 0 else ""
            return f"bake {of['recipeid']} on {of['node']} {of['state']}{pct}: {of['summary']}"
        case _:
            shown = ", ".join(f"{key} {value}" for key, value in of.items() if key not in ("node", "nodeid"))
            return f"{event.name} of {of['node']}: {shown}"


def _first(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _shown(node: Node) -> tuple[Any, ...]:
    status = node.status
    ready = sum(each.get("ready") == 1 for each in status.components)
    flags = (bool(status.draining), bool(status.storefull), status.version, status.boot)
    return node.state, status.bakes, status.queued, ready, len(status.components), flags


def _node_event(node: Node) -> Event:
    status = node.status
    return Event(
        "node",
        {
            "node": status.node,
            "nodeid": status.node_id,
            "state": str(node.state),
            "bakes": status.bakes,
            "queued": status.queued,
            "load": status.load,
            "ready": sum(each.get("ready") == 1 for each in status.components),
            "components": len(status.components),
            "draining": bool(status.draining),
            "storefull": bool(status.storefull),
            "version": status.version,
        },
    )


def _component_event(found: ComponentInfo, state: str) -> Event:
    return Event(
        "component",
        {
            "name": found.name,
            "node": found.node,
            "nodeid": found.node_id,
            "state": state,
            "restarts": found.restarts,
            "reason": found.reason,
            "pid": found.pid,
        },
    )


def _numbers(said: Performance) -> dict[str, Any]:
    names = ("cpu", "load", "memory", "memorytotal", "disk", "disktotal", "temperature", "queues")
    return {name: value for name in names if (value := getattr(said, name)) is not None}
