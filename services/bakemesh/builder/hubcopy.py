"""What the hub has of a leaf's streams: whether a purge here would lose something there.

A purge overtakes sourcing: what the hub has not fetched yet is lost to it without a word. So a leaf's node
asks first. A message has arrived when the hub's stream has taken a later one, or that one, from here: that is
known even where the hub has purged it since. On a shared server nothing is sourced twice, and all may go.
"""

from __future__ import annotations

from typing import Any

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import NotFound
from bakemesh.bus.purge import stored_terminal
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeData
from bakemesh.protocol.numerals import whole
from bakemesh.protocol.subjects import BAKE

ENDS = ("Success", "Failed", "Cancelled")
NO_MESSAGE = 10037
SOURCE = "Nats-Stream-Source"


def position(info: dict[str, Any], stream: str) -> int | None:
    """How far a sourcing stream (`info`: STREAM.INFO) has come in `stream`; None: the server does not say."""
    for source in info.get("sources") or ():
        if source.get("name") == stream:
            found = source.get("seq")
            return None if found is None else int(found)
    return 0


def origin(headers: dict[str, str]) -> int:
    """The sequence that a sourced message has in the stream that it is from."""
    words = headers.get(SOURCE, "").split()
    return (whole(words[1]) or 0) if len(words) > 1 else 0


class HubCopy:
    """Asks the hub, at most once a round for each stream. Every method raises a BusError where the hub, or
    the server beside, cannot say: then nothing is known.
    """

    def __init__(self, bus: Bus, node_id: str) -> None:
        self.bus, self.node_id = bus, node_id
        mesh = bus.mesh
        self._status = (storage.status_stream(mesh, node_id), storage.hub_status_stream(mesh), f"{BAKE}.*")
        self._data = (storage.data_stream(mesh, node_id), storage.hub_data_stream(mesh), BakeData.TYPE)
        self._known: dict[str, int] = {}

    def forget(self) -> None:
        """A new round."""
        self._known.clear()

    async def has_end(self, party: str, key: str) -> bool:
        """Whether the hub has, or had, the terminal of a bake that has ended and has nothing left to send."""
        if not self.bus.on_leaf:
            return True
        if await stored_terminal(self.bus, node_id=self.node_id, party=party, key=key) is not None:
            return True
        prefix = f"{self.bus.mesh}.{self.node_id}.{party}.{key}.{BAKE}"
        stored = [await self._last(self._status[0], f"{prefix}.{name}") for name in ENDS]
        return max(stored) <= await self.status_position()

    async def has_data(self, party: str, key: str) -> bool:
        """Whether the hub has, or had, all Data of a bake."""
        if not self.bus.on_leaf:
            return True
        last = await self._last(
            self._data[0], f"{self.bus.mesh}.{self.node_id}.{party}.{key}.{BakeData.TYPE}"
        )
        return last <= await self._position(*self._data)

    async def status_position(self) -> int:
        """The sequence in the node's Status stream up to which the hub has it."""
        return await self._position(*self._status)

    async def _position(self, stream: str, hub_stream: str, types: str) -> int:
        known = self._known.get(stream)
        if known is None:
            known = self._known[stream] = await self._ask(stream, hub_stream, types)
        return known

    async def _ask(self, stream: str, hub_stream: str, types: str) -> int:
        own = await self.bus.api.stream_info(stream)
        try:
            info = await self.bus.hub_api.stream_info(hub_stream)
            found = position(info, stream)
            if found is None:
                wanted = f"{self.bus.mesh}.{self.node_id}.*.*.{types}"
                newest = await self.bus.hub_api.get_message(hub_stream, last_of=wanted)
                found = origin(dict(newest.headers))
        except NotFound:
            return 0
        # Beyond our own end: it speaks of another stream, which had this one's name before.
        return found if found <= int(own["state"]["last_seq"]) else 0

    async def _last(self, stream: str, subject: str) -> int:
        """Sequence of the subject's last message; 0 where there is none."""
        try:
            return (await self.bus.api.get_message(stream, last_of=subject)).sequence
        except NotFound as error:
            if error.err_code != NO_MESSAGE:
                raise
            return 0
