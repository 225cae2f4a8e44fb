"""Psyclone.Ready: woken live, and by the notes that the Startup Supervisors leave, so that a component that
starts later, starts again, or was cut off is woken too; each Ready (by its envelope's id) once a life.

A note counts while the nodes bucket holds no SystemStatus of another boot of its node: after a node's restart
the note of its former life stays until the new one is written, and wakes nobody once the node's new
SystemStatus is stored. Left out: the time before that. A node that has not come back yet cannot be told from
one that is where it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusClosed, BusError, NotFound
from bakemesh.bus.reader import read
from bakemesh.crank.backlog import Item
from bakemesh.crank.mailbox import Mailbox
from bakemesh.crank.messages import message_for
from bakemesh.protocol import storage
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import SystemStatus
from bakemesh.protocol.builder.spec.component import Trigger
from bakemesh.protocol.errors import ProtocolError
from bakemesh.protocol.message import Received, decode
from bakemesh.protocol.startup import Ready

log = logging.getLogger(__name__)

_NOTE: Final = storage.ready_key("")  # the end of such a key
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
CUT_OFF_LOOK_S: Final = 30.0  # on a leaf nobody tells that its link was away


def notes_of(values: Mapping[str, bytes]) -> list[Received]:
    """The Readys that count in the nodes bucket (key → value), by node. Pure."""
    found = []
    for key, value in sorted(values.items()):
        if not key.endswith(_NOTE):
            continue
        node_id = key.removesuffix(_NOTE)
        note, status = _decoded(key, value), _decoded(node_id, values.get(node_id))
        if note is None or not isinstance(note.message, Ready) or note.message.node_id != node_id:
            continue
        if status is not None and isinstance(status.message, SystemStatus):
            if status.message.boot == note.message.boot:
                found.append(note)
        else:
            found.append(note)  # nothing says otherwise
    return found


def _decoded(key: str, value: bytes | None) -> Received | None:
    if value is None:
        return None
    try:
        return decode(value)
    except ProtocolError as error:
        log.warning("nodes bucket, %s: %s", key, error)
        return None


class ReadyNotes:
    """What wakes the triggers on Psyclone.Ready."""

    def __init__(
        self, bus: Bus, triggers: tuple[Trigger, ...], mailbox: Mailbox, *, look_s: float = CUT_OFF_LOOK_S
    ) -> None:
        self._bus, self._triggers, self._mailbox = bus, triggers, mailbox
        self._look_s = look_s if bus.on_leaf else None
        self._seen: set[bytes] = set()
        self._news = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to look, in the background."""
        self._news.set()
        self._runner = asyncio.create_task(self._run(), name="ready notes")

    def again(self) -> None:
        """The link is back: a Ready may have been missed."""
        self._news.set()

    async def close(self) -> None:
        """Ends it."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)

    def live(self, delivery: Delivery) -> None:
        """A Ready as it is published."""
        self._give(delivery.received, delivery.subject.party, delivery.subject.node_id, len(delivery.payload))

    async def _run(self) -> None:
        tries = 0
        while True:
            wait = self._look_s if tries == 0 else _PAUSES_S[min(tries, len(_PAUSES_S)) - 1]
            try:
                async with asyncio.timeout(wait):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            try:
                await self._look()
                tries = 0
            except BusClosed:
                return
            except BusError as error:
                tries += 1
                log.info("Ready notes cannot be read now: %s", error)

    async def _look(self) -> None:
        bucket = storage.nodes_bucket(self._bus.mesh)
        prefix = storage.bucket_subject(bucket, "")
        values: dict[str, bytes] = {}
        try:
            async for stored in read(
                self._bus,
                storage.bucket_stream(bucket),
                prefix + ">",
                end="last",
                api=self._bus.hub_api,
            ):
                values[stored.subject.removeprefix(prefix)] = stored.payload
        except NotFound:
            return  # no bucket: nobody has noted anything
        for note in notes_of(values):
            sender = note.sender.partition("@")[0]
            assert isinstance(note.message, Ready)
            self._give(
                note, sender, note.message.node_id, len(values[storage.ready_key(note.message.node_id)])
            )

    def _give(self, received: Received, sender: str, node_id: str, size: int) -> None:
        if received.id in self._seen:
            return
        self._seen.add(received.id)
        for trigger in self._triggers:
            message = message_for(trigger.name, received, sender, node_id)
            self._mailbox.put(Item(message, size, kept=True), trigger.after_ms / 1000)
