"""The live picture of `bakemesh watch` on a terminal: nodes, components that are not ready, bakes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bakemesh.cli.progress import one_line
from bakemesh.cli.watching import Bake, Node, View
from bakemesh.supervisor.nodes import NodeState

BAKES_SHOWN = 30
_STYLES = {
    "ready": "green",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "gone": "red",
    "quarantined": "red",
    "unresponsive": "yellow",
    "draining": "yellow",
    "drained": "yellow",
    "backoff": "yellow",
    "unhealthy": "yellow",
    "queued": "yellow",
    "paused": "yellow",
    "held": "yellow",
    "cancelled": "yellow",
}


def draw(view: View, now: float) -> Any:
    """The picture, for rich."""
    from rich.console import Group

    parts = [_nodes(view, now)]
    if any(not each.ready for node in view.nodes.values() for each in node.components.values()):
        parts.append(_components(view))
    parts.append(_bakes(view))
    return Group(*parts)


def node_row(node: Node, now: float) -> tuple[str, ...]:
    """A node's cells: name, state, bakes, queued, components, CPU, memory, disk, heard."""
    status, said = node.status, node.performance
    ready = sum(each.ready for each in node.components.values())
    return (
        node.name,
        str(node.state),
        str(status.bakes),
        str(status.queued),
        f"{ready}/{len(node.components)}" if node.components else "",
        f"{said.cpu:.0%}" if said is not None and said.cpu is not None else "",
        _of(said.memory, said.memorytotal) if said is not None else "",
        _of(said.disk, said.disktotal) if said is not None else "",
        f"{max(0, int(now - node.heard))}s" if node.state is not NodeState.READY else "",
    )


def _of(used: int | None, total: int | None) -> str:
    return f"{used / total:.0%}" if used is not None and total else ""


def _nodes(view: View, now: float) -> Any:
    columns = ("node", "state", "bakes", "queued", "components", "cpu", "memory", "disk", "silent")
    rows = [node_row(node, now) for _, node in sorted(view.nodes.items())]
    return _table(columns, rows or [("no node has been heard yet", *[""] * 8)])


def _components(view: View) -> Any:
    rows = [
        (each.name, each.node, each.state, str(each.restarts), one_line(each.reason)[:80])
        for _, node in sorted(view.nodes.items())
        for each in node.components.values()
        if not each.ready
    ]
    return _table(("component", "node", "state", "restarts", "reason"), rows)


def _bakes(view: View) -> Any:
    running = [bake for bake in view.bakes.values() if bake.ended is None]
    ended = [bake for bake in view.bakes.values() if bake.ended is not None]
    shown = (running + ended[::-1])[:BAKES_SHOWN]
    table = _table(("bake", "node", "state", "%", "summary"), [_bake_row(bake) for bake in shown])
    if len(view.bakes) > len(shown):
        table.caption = f"and {len(view.bakes) - len(shown)} more"
    return table


def _bake_row(bake: Bake) -> tuple[str, ...]:
    pct = str(bake.pct) if bake.pct >= 0 else ""
    return bake.recipe_id, bake.node, bake.state, pct, one_line(bake.summary)[:80]


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*[Text(one_line(text), style=_STYLES.get(text, "")) for text in row])
    return table
