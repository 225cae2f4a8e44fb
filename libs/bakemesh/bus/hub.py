"""The hub's source lists: which nodes' streams its Status and Data streams draw from.

`<mesh>-status` sources every node's Status, `<mesh>-data` the Data of nodes on leaves alone (bytes on the
same server are not stored twice). Two updates of a list at once would lose one of them without a word, so
the lists have one writer in the mesh, by the lock `lock.sources`, which rebuilds them from the nodes bucket
every few seconds, and at once has the hub draw again from a leaf that is back (`returning`). Every Builder
runs one `Sources`; one of them holds the lock. Left out: the streams' sizes and rules (`streams`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bakemesh.bus.claim import Lock
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusClosed, BusError, NotFound
from bakemesh.bus.kv import Bucket, Entry
from bakemesh.bus.returning import Returning
from bakemesh.bus.sizes import Sizes
from bakemesh.bus.streams import DEFAULT_SIZES, ensure_hub_data, ensure_hub_status, source
from bakemesh.bus.verbs import Subscription
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import SystemStatus
from bakemesh.protocol.errors import ProtocolError
from bakemesh.protocol.message import decode

log = logging.getLogger(__name__)

EVERY_S = 5.0
LOCK = "sources"
SourceList = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a node's streams are: on the hub's own servers, or on a leaf, whose domain is the NodeID."""

    node_id: str
    leaf: bool

    @property
    def domain(self) -> str | None:
        """The JetStream domain, None for the hub's own."""
        return self.node_id if self.leaf else None


def places(entries: Mapping[str, Entry]) -> list[Place]:
    """The nodes in the nodes bucket, in order. Claims, locks and what is no SystemStatus are passed over."""
    found = []
    for key, entry in entries.items():
        if "." in key:
            continue
        try:
            status = decode(entry.value).message
        except ProtocolError as error:
            log.warning("nodes bucket, %s: %s", key, error)
            continue
        if isinstance(status, SystemStatus) and status.node_id == key:
            found.append(Place(key, bool(status.leaf)))
    return sorted(found)


def wanted(mesh: str, nodes: Iterable[Place]) -> tuple[SourceList, SourceList]:
    """The sources of the hub's Status and Data streams."""
    nodes = sorted(nodes)
    status = [source(storage.status_stream(mesh, node.node_id), node.domain) for node in nodes]
    data = [source(storage.data_stream(mesh, node.node_id), node.domain) for node in nodes if node.leaf]
    return status, data


def same(one: SourceList, other: SourceList) -> bool:
    """Whether two lists name the same streams in the same places."""
    return _names(one) == _names(other)


def _names(sources: SourceList) -> set[tuple[str, str]]:
    return {(each["name"], (each.get("external") or {}).get("api", "")) for each in sources}


class Sources:
    """Keeps the source lists, while it holds the lock."""

    def __init__(self, bus: Bus, sizes: Sizes = DEFAULT_SIZES, *, every_s: float = EVERY_S) -> None:
        self._bus, self._sizes, self._every_s = bus, sizes, every_s
        self._lock = Lock(bus, LOCK, f"{bus.settings.sender} {secrets.token_hex(8)}")
        self._nodes = Bucket(bus, storage.nodes_bucket(bus.mesh))
        self._returning = Returning(bus)
        self._hearing: Subscription | None = None
        self._due = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins; never fails for a hub that is out of reach."""
        self._runner = asyncio.create_task(self._run(), name="sources")

    async def close(self) -> None:
        """Ends it and gives the lock up."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
            self._runner = None
        with contextlib.suppress(BusError):
            await self._hear(False)
        await self._lock.release()

    async def _run(self) -> None:
        while True:
            self._due.clear()
            try:
                held = self._lock.held or await self._lock.try_take()
                await self._hear(held)
                if held:
                    await self.reconcile()
                    await self._returning.renew(asyncio.get_running_loop().time())
            except BusClosed:
                return
            except BusError as error:
                log.info("source lists: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._due.wait()

    async def _hear(self, wanted: bool) -> None:
        """Listens to the nodes' signs of life while the lists are kept here, and only then."""
        if wanted and self._hearing is None:
            everyone = subjects.pattern(self._bus.mesh, subjects.SYSTEM_STATUS)
            self._hearing = await self._bus.subscribe(everyone, self._heard)
        elif not wanted and self._hearing is not None:
            hearing, self._hearing = self._hearing, None
            await hearing.stop()

    def _heard(self, delivery: Delivery) -> None:
        if self._returning.heard(delivery.subject.node_id):
            self._due.set()

    async def reconcile(self) -> bool:
        """Brings both lists to what the nodes bucket says, once; whether something changed.

        To be called by the lock's holder alone. Raises what the API raises.
        """
        nodes = places(await self._nodes.entries(lambda key: "." not in key))  # each costs a request
        status, data = wanted(self._bus.mesh, nodes)
        changed = await self._bring(storage.hub_status_stream(self._bus.mesh), status)
        return await self._bring(storage.hub_data_stream(self._bus.mesh), data) or changed

    async def _bring(self, name: str, sources: SourceList) -> bool:
        if not sources:
            return False  # without one, a stream would take its own name as a subject
        api = self._bus.hub_api
        try:
            found = await api.stream_info(name)
        except NotFound:
            make = ensure_hub_data if name.endswith("-data") else ensure_hub_status
            found = await make(api, self._bus.mesh, sources, self._sizes)
        config = found["config"]
        if same(config.get("sources") or [], sources) or not self._lock.held:
            return False
        # What is there already stays word for word: the server takes a changed source for a new one.
        there = {key: each for each in config.get("sources") or [] for key in _names([each])}
        kept = [there.get(next(iter(_names([each]))), each) for each in sources]
        await api.update_stream(config | {"sources": kept})
        log.info("%s draws from %s", name, ", ".join(each["name"] for each in sources))
        return True
