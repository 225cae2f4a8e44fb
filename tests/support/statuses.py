"""A SystemStatus as an idle node says it, for tests that speak for one."""

from __future__ import annotations

from typing import Any

from bakemesh.protocol.builder.messages import SystemStatus


def system_status(node: str, node_id: str | None = None, **more: Any) -> SystemStatus:
    """Of a node whose id is its name where no other is given; `more`: fields that are otherwise."""
    values: dict[str, Any] = {
        "boot": "b",
        "bakes": 0,
        "queued": 0,
        "load": 0.0,
        "draining": False,
        "configcomplete": True,
        "version": "0",
        "protocols": ["builder-v1"],
        "stepkinds": ["cli"],
        "components": [],
    }
    return SystemStatus(node=node, node_id=node_id or node, **(values | more))
