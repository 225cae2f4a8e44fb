"""Results on their way to who wants them, and whom they are about.

What a stranger wrote is not sent back as it came: an entry that can be no name is left out, so that an answer
is never larger than a few hundred bytes whatever was asked.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.protocol import names
from bakemesh.protocol.identity import ENTRIES, Identity
from bakemesh.protocol.message import Message, decode

log = logging.getLogger(__name__)


def known(identity: Identity) -> dict[str, Any]:
    """Those of the five that can be names, as keyword arguments of a Result."""
    fields = identity.fields().items()
    return {
        field: value
        for (field, value), entry in zip(fields, ENTRIES, strict=True)
        if names.is_valid(entry, value)
    }


class Answers:
    """Sends Results to inboxes; nobody waits for that, and one that cannot be sent is asked for again."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, reply: str | None, payload: bytes | None) -> None:
        """Sends a sealed Result to `reply`; where either is None there is nothing to do."""
        if reply is None or payload is None:
            return
        task = asyncio.create_task(self.say(reply, decode(payload).message))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def say(self, reply: str | None, message: Message) -> None:
        """Sends a Result to `reply`; where that is None there is nothing to do. Raises nothing."""
        if reply is None:
            return
        try:
            await self._bus.publish(reply, message)
        except BusError as error:
            log.info("a Result could not be sent to %s: %s", reply, error)

    async def close(self) -> None:
        """Returns when what was given is sent, or cannot be."""
        await asyncio.gather(*self._sending, return_exceptions=True)
