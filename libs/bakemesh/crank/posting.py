"""What a crank posts: by the post's name, checked before anything is sent.

    core      at most once: handed to the server, or lost while the link is down (counted, logged once)
    durable   at least once: published until the stream has it, whatever is away, always under the same id

Guarantees: a name that the spec does not have, and entries that cannot be sent, are refused at once. A
durable post that was repeated within the stream's two minutes is stored once. Left out: who is woken by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import NoStore, NotConnected, StoreFull, StoreUnavailable
from bakemesh.bus.sealing import Sealed, seal
from bakemesh.crank.errors import EntriesRefused, UnknownName
from bakemesh.protocol import envelope, subjects
from bakemesh.protocol.builder.spec.component import ComponentSpec, Post
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.message import GenericMessage

log = logging.getLogger(__name__)

_ATTEMPT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class _Way(NamedTuple):
    post: Post
    subject: str


class Poster:
    """One component's posts. `lost` is called for each core post that nobody can have got."""

    def __init__(self, bus: Bus, spec: ComponentSpec, lost: Callable[[], None]) -> None:
        self._bus, self._owner, self._lost = bus, spec.name, lost
        self._said = False
        self._ways = {
            post.name: _Way(
                post,
                subjects.build(bus.mesh, bus.settings.node_id, spec.name, subjects.NO_KEY, post.type),
            )
            for post in spec.posts
        }

    async def post(self, name: str, entries: Mapping[str, Any]) -> None:
        """Sends it; a durable one is stored when this returns.

        Raises UnknownName, EntriesRefused; the bus's MessageTooLarge, BusClosed, and (durable) AccessDenied.
        """
        way = self._ways.get(name)
        if way is None:
            raise UnknownName("post", name, self._ways, self._owner)
        sealed = sealed_entries(name, way.post.type, entries, self._bus.settings.sender)
        if way.post.durable:
            await self._stored(way.subject, sealed)
            return
        try:
            await self._bus.link.send(way.subject, sealed.payload)
            self._said = False
        except NotConnected as error:
            self._lost()
            if not self._said:
                self._said = True
                log.warning("post %s is lost, and those after it until the bus is back: %s", name, error)

    async def _stored(self, subject: str, sealed: Sealed) -> None:
        pause, said = _FIRST_PAUSE_S, ""
        while True:
            try:
                ack = await self._bus.publish_stored(subject, sealed, timeout=_ATTEMPT_S)
            except (NotConnected, StoreUnavailable, NoStore, StoreFull) as error:
                reason = type(error).__name__
                if reason != said:
                    said = reason
                    log.warning("a durable post waits: %s", error)
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE_S, pause * 2)
                continue
            if said:
                log.info("the durable post is stored, as %d of %s", ack.seq, ack.stream)
            return


def sealed_entries(post: str, type_: str, entries: Mapping[str, Any], sender: str) -> Sealed:
    """The message of a post. Raises EntriesRefused."""
    if not isinstance(entries, Mapping):
        raise EntriesRefused(post, f"entries must be a map of names to values, not {type(entries).__name__}")
    try:
        return seal(GenericMessage.from_entries(dict(entries), type_), sender, type=type_)
    except MessageError as error:
        raise EntriesRefused(post, why_not(entries, error)) from error


def why_not(entries: Mapping[Any, Any], error: MessageError) -> str:
    """Which entry cannot be sent. Pure."""
    for key, value in entries.items():
        if not isinstance(key, str):
            break
        try:
            envelope.pack("t", bytes(envelope.ID_BYTES), 0, "s", {key: value})
        except MessageError as found:
            return (
                f"entry {key[:80]!r} ({type(value).__name__}) cannot be sent: {found}; entries are None, "
                "bool, int of 64 bits, float, str, bytes, and lists and maps of these"
            )
    return str(error)
