"""The nodes of the mesh as the SDK looks them up, read from the nodes bucket and remembered for a while.

A name's id is remembered for half a minute, so that a recipe costs no look-up; `any` always reads the loads
afresh. On a leaf that is cut off the hub's bucket is out of reach: then what was read before counts, and
the node beside whose server one is can always be named.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakemesh.bus.errors import NotConnected, NotFound, StoreUnavailable
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage
from bakemesh.supervisor.nodes import NodeInfo, by_load, find, read_nodes

if TYPE_CHECKING:
    from bakemesh.bus import Bus

REMEMBERED_S = 30.0
LOADS_S = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """A node by name and id."""

    name: str
    node_id: str


class Directory:
    """Node look-ups over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, storage.nodes_bucket(bus.mesh))
        self._nodes: list[NodeInfo] = []
        self._read_at = float("-inf")
        self._places: dict[str, tuple[Place, float]] = {}
        self._placed: Counter[str] = Counter()
        self._reading = asyncio.Lock()

    async def nodes(self) -> list[NodeInfo]:
        """Every node that ever reported, by id. Raises a bus error where the bucket cannot be read."""
        return await self._read(max_age=0)

    async def look(self, node_id: str) -> NodeInfo | None:
        """One node as it is now, by its id; None where it never reported. Cheaper than `nodes`."""
        keys = (node_id, storage.claim_key(node_id))
        return next(iter(await self._fetch(lambda key: key in keys)), None)

    async def find(self, wanted: str) -> Place:
        """The node with this name or id. Raises NodeUnknown, AmbiguousNode."""
        now = time.monotonic()
        remembered = self._places.get(wanted)
        if remembered and now - remembered[1] < REMEMBERED_S:
            return remembered[0]
        try:
            node = find(await self._read(max_age=0), wanted)
        except (StoreUnavailable, NotConnected):
            if remembered:
                return remembered[0]
            if self._bus.on_leaf and wanted == self._bus.domain:
                return Place(self.name_of(wanted), wanted)
            raise
        self._places[wanted] = (Place(node.name, node.node_id), now)
        return self._places[wanted][0]

    async def known(self) -> list[NodeInfo]:
        """As `nodes`, but empty where the bucket is out of reach."""
        try:
            return await self.nodes()
        except (StoreUnavailable, NotConnected):
            return self._nodes

    def name_of(self, node_id: str) -> str:
        """The name of a node as far as it is known, else its id."""
        return next((node.name for node in self._nodes if node.node_id == node_id), node_id)

    async def least_loaded(self) -> list[Place]:
        """Nodes that take recipes, best first. Raises NoNodeAvailable. On a leaf that is cut off: its own."""
        try:
            nodes = await self._read(max_age=LOADS_S)
        except (StoreUnavailable, NotConnected):
            if self._bus.on_leaf and self._bus.domain is not None:
                return [Place(self.name_of(self._bus.domain), self._bus.domain)]
            raise
        return [Place(node.name, node.node_id) for node in by_load(nodes, self._placed)]

    def placed(self, node_id: str) -> None:
        """A recipe was sent there: it counts as load until the bucket is read again."""
        self._placed[node_id] += 1

    async def _read(self, max_age: float) -> list[NodeInfo]:
        async with self._reading:
            if time.monotonic() - self._read_at > max_age:
                self._nodes = await self._fetch()
                self._read_at = time.monotonic()
                self._placed.clear()
            return self._nodes

    async def _fetch(self, of: Callable[[str], bool] = lambda _key: True) -> list[NodeInfo]:
        try:
            look = await self._bucket.look(of)
        except NotFound:  # no Builder was ever on this mesh
            return []
        ages = {key: max(0.0, look.at - entry.at) for key, entry in look.entries.items()}
        return read_nodes({key: entry.value for key, entry in look.entries.items()}, ages)
