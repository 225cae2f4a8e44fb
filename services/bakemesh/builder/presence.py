"""How the node shows that it is there: the claim (one Builder a node) and SystemStatus every few seconds.

A claim that cannot be renewed because the link is down never stops a Builder; one that somebody else holds
does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path

from bakemesh.builder.kitchen import Kitchen
from bakemesh.builder.steps import SUPPORTED
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import envelope, storage
from bakemesh.protocol.builder.messages import SystemStatus
from bakemesh.protocol.subjects import NO_KEY, build

log = logging.getLogger(__name__)
EVERY_S = 5.0


def version() -> str:
    """The distribution's version."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    with contextlib.suppress(PackageNotFoundError):
        return of("bakemesh")
    return "0"


def boot_id() -> str:
    """This boot of the machine."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return "unknown"


class Presence:
    """Publishes SystemStatus on change and every 5 s, and keeps the last one in the nodes bucket."""

    def __init__(self, bus: Bus, kitchen: Kitchen) -> None:
        self.bus, self.kitchen = bus, kitchen
        self.bucket = Bucket(bus, storage.nodes_bucket(bus.mesh))
        self.boot, self.version = boot_id(), version()
        self._changed = asyncio.Event()

    def status(self) -> SystemStatus:
        """The node, now."""
        house, kitchen = self.kitchen.house, self.kitchen
        return SystemStatus(
            node=house.node,
            node_id=house.node_id,
            boot=self.boot,
            bakes=kitchen.running,
            queued=kitchen.queued,
            load=round(os.getloadavg()[0] / (os.cpu_count() or 1), 3),
            draining=kitchen.draining,
            configcomplete=True,
            version=self.version,
            protocols=[f"builder-v{envelope.VERSION}"],
            stepkinds=sorted(SUPPORTED),
            components=[],
            leaf=self.bus.on_leaf,
            storefull=kitchen.kit.data.writer.full,
        )

    def changed(self) -> None:
        """Something worth saying at once."""
        self._changed.set()

    async def say(self) -> None:
        """Publishes it once. A bus that is away is no failure: the next one follows soon."""
        house, message = self.kitchen.house, self.status()
        subject = build(self.bus.mesh, house.node_id, f"builder-{house.node_id}", NO_KEY, SystemStatus.TYPE)
        try:
            await self.bus.publish(subject, message)
            await self.bucket.put(house.node_id, self.bus.seal(message).payload)
        except BusError as error:
            log.info("SystemStatus not published: %s", error)

    async def run(self) -> None:
        """Says it every few seconds, for ever, and at once where something changed."""
        while True:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), EVERY_S)
            self.kitchen.watch_store()
            await self.say()
