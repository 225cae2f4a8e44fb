"""Which streams hold a bake's reverse messages, and reading them with the checks that every receiver makes.

A node's streams are on the server beside its Builder: `<mesh>-status-<NodeID>`, `<mesh>-data-<NodeID>`.
Where one's own server has them they are read there, else on the hub, else from the hub's `<mesh>-status`
and `<mesh>-data`, which source them. Guarantees: only messages are given whose subject, type, identity and
headers agree (`admit`); what a stranger smuggled in is skipped.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from bakemesh.bus.errors import NotFound, StoreUnavailable
from bakemesh.bus.reader import read
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.admit import Delivery, admit
from bakemesh.protocol.builder.messages import BakeData, BakeStatus
from bakemesh.protocol.identity import Identity, IdentityMessage
from bakemesh.protocol.subjects import BAKE

if TYPE_CHECKING:
    from bakemesh.bus import Bus
    from bakemesh.bus.jsapi import JsApi, Stored

End = Literal["last", "follow"]
M = TypeVar("M", bound=IdentityMessage)
LATE_NS = 5_000_000_000  # a source that was not heard of for longer may hold more than its lag says


@dataclass(frozen=True, slots=True)
class Place:
    """A stream on one JetStream. `sourced`: it is the hub's copy, which may be behind the node's."""

    api: JsApi
    stream: str
    sourced: bool


class ReverseStreams:
    """Reads the Status and Data of bakes over one bus; remembers where each node's are."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._places: dict[tuple[str, bool], Place] = {}

    async def status(self, identity: Identity, start: int) -> AsyncGenerator[tuple[BakeStatus, int]]:
        """Stored Status and outcomes of a bake from a stream sequence on, up to what is there now."""
        place = await self._place(identity.node_id, data=False)
        async with aclosing(self._read(place, identity, f"{BAKE}.*", start, "last")) as stored:
            async for one in stored:
                if (status := taken(one, identity, BakeStatus)) is not None:
                    yield status, one.sequence

    async def status_count(self, identity: Identity) -> int:
        """How many Status and outcomes of a bake are stored."""
        place = await self._place(identity.node_id, data=False)
        info = await place.api.stream_info(place.stream, subjects_filter=self._filter(identity, f"{BAKE}.*"))
        return sum((info["state"].get("subjects") or {}).values())

    async def data(
        self, identity: Identity, start: int, end: End
    ) -> AsyncGenerator[tuple[BakeData | None, int]]:
        """Stored Data of a bake from a stream sequence on; None for a message that is not taken."""
        place = await self._place(identity.node_id, data=True)
        async with aclosing(self._read(place, identity, f"{BAKE}.Data", start, end)) as stored:
            async for one in stored:
                yield taken(one, identity, BakeData), one.sequence

    async def data_is_late(self, node_id: str) -> bool:
        """Whether the stream that is read may still get Data that its node has already."""
        try:
            place = await self._place(node_id, data=True)
            if not place.sourced:
                return False
            info = await place.api.stream_info(place.stream)
        except (NotFound, StoreUnavailable):
            return True
        wanted = storage.data_stream(self._bus.mesh, node_id)
        for source in info.get("sources") or ():
            if source.get("name") == wanted:
                active = int(source.get("active", -1))
                return int(source.get("lag", 0)) > 0 or active < 0 or active > LATE_NS
        return True  # not among the sources yet

    def _read(
        self,
        place: Place,
        identity: Identity,
        kind: str,
        start: int,
        end: End,
    ) -> AsyncGenerator[Stored]:
        wanted = self._filter(identity, kind)
        return read(self._bus, place.stream, wanted, start_sequence=start, end=end, api=place.api)

    def _filter(self, identity: Identity, kind: str) -> str:
        return subjects.pattern(
            self._bus.mesh, kind, node_id=identity.node_id, party=identity.supervisor, key=identity.recipe_id
        )

    async def _place(self, node_id: str, *, data: bool) -> Place:
        """Where a node's messages are read. Raises NotFound while no such stream exists, StoreUnavailable."""
        key = (node_id, data)
        if (known := self._places.get(key)) is not None:
            return known
        bus = self._bus
        own = (storage.data_stream if data else storage.status_stream)(bus.mesh, node_id)
        copy = (storage.hub_data_stream if data else storage.hub_status_stream)(bus.mesh)
        candidates = [Place(bus.api, own, sourced=False)]
        if bus.on_leaf:
            candidates.append(Place(bus.hub_api, own, sourced=False))
        candidates.append(Place(bus.hub_api, copy, sourced=True))
        for place in candidates:
            try:
                info = await place.api.stream_info(place.stream)
            except NotFound:
                continue
            sources = info["config"].get("sources") or ()
            if not place.sourced or any(source.get("name") == own for source in sources):
                self._places[key] = place  # else the node is not known to the hub yet: look again next time
            return place
        raise NotFound(own, "no stream holds this node's messages yet")


def taken(stored: Stored, identity: Identity, cls: type[M]) -> M | None:
    """The message if it is of this bake and of this class, else None."""
    delivery = admit(stored.subject, None, stored.headers, stored.payload)
    if not isinstance(delivery, Delivery):
        return None
    message = delivery.received.message
    if not isinstance(message, cls):
        return None
    subject, said = delivery.subject, message.identity
    of_bake = (subject.party, subject.key) == identity.key == said.key
    return message if of_bake and subject.node_id == identity.node_id == said.node_id else None
