"""Where components and who cares for them reach the host: three subscriptions of one Builder."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from bakemesh.builder.components.orders import Orders
from bakemesh.builder.components.reports import Reports
from bakemesh.bus.connection import Bus
from bakemesh.protocol.subjects import COMPONENT_CONTROL, COMPONENT_REPORT, COMPONENT_WATCH, pattern


async def open_desk(
    bus: Bus, node_id: str, reports: Reports, orders: Orders
) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Serves them; returns what ends each."""
    watching = await bus.subscribe(pattern(bus.mesh, COMPONENT_WATCH, node_id=node_id), reports.watch)
    reporting = await bus.serve(
        pattern(bus.mesh, COMPONENT_REPORT, node_id=node_id), reports.answer, refused=reports.refused
    )
    ordering = await bus.serve(
        pattern(bus.mesh, f"{COMPONENT_CONTROL}.*", node_id=node_id), orders.answer, refused=orders.refused
    )
    return [watching.stop, reporting.stop, ordering.stop]
