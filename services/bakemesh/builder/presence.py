"""How the node shows that it is there: SystemStatus on every change and every few seconds.

Changes are said at most every 0.2 s. The last one lies in the nodes bucket too, and an ordered end says its
own: nobody takes what was stopped for something that runs. A hub that is out of reach keeps nobody near from
hearing. Left out: that there is one Builder a node (see `hubward`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os

from bakemesh.builder.components.host import Components
from bakemesh.builder.kitchen import Kitchen
from bakemesh.builder.steps import SUPPORTED
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import envelope, storage
from bakemesh.protocol.builder.messages import SystemStatus
from bakemesh.protocol.rights import builder_name
from bakemesh.protocol.subjects import NO_KEY, build

log = logging.getLogger(__name__)
EVERY_S = 5.0
SOONEST_S = 0.2
LOOK_S = 0.5  # whether the store is full is seen by looking


def version() -> str:
    """The distribution's version."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    with contextlib.suppress(PackageNotFoundError):
        return of("bakemesh")
    return "0"


class Presence:
    """Publishes SystemStatus, and keeps the last one in the nodes bucket."""

    def __init__(self, bus: Bus, kitchen: Kitchen, components: Components, boot: str) -> None:
        self.bus, self.kitchen, self.components = bus, kitchen, components
        self.bucket = Bucket(bus, storage.nodes_bucket(bus.mesh))
        self.boot, self.version = boot, version()
        self._changed, self._said = asyncio.Event(), asyncio.Event()
        self._latest = b""
        kitchen.on_change = components.on_change = self.changed

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
            components=self.components.rows(),
            leaf=self.bus.on_leaf,
            storefull=kitchen.store_full,
        )

    def changed(self) -> None:
        """Something of it is not as it was said."""
        self._changed.set()

    async def tell(self) -> None:
        """Says it and keeps it now, as far as the hub can be reached: first, so that the node is found,
        and last."""
        await self._say()
        await self._put()

    async def run(self) -> None:
        """Says it every few seconds, for ever, and soon where something changed."""
        await asyncio.gather(self._speak(), self._keep())

    async def _speak(self) -> None:
        time = asyncio.get_running_loop().time
        due, soonest = time() + EVERY_S, time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, max(0.0, due - time()))):
                    await self._changed.wait()
            self.kitchen.watch_store()
            if self._changed.is_set():
                await asyncio.sleep(max(0.0, soonest - time()))
            elif time() < due:
                continue
            self._changed.clear()
            await self._say()
            self._said.set()
            due, soonest = time() + EVERY_S, time() + SOONEST_S

    async def _say(self) -> None:
        house, message = self.kitchen.house, self.status()
        subject = build(self.bus.mesh, house.node_id, builder_name(house.node_id), NO_KEY, SystemStatus.TYPE)
        self._latest = self.bus.seal(message).payload
        try:
            await self.bus.publish(subject, message)
        except BusError as error:
            log.info("SystemStatus not published: %s", error)

    async def _keep(self) -> None:
        while True:
            await self._said.wait()
            self._said.clear()
            await self._put()

    async def _put(self) -> None:
        try:
            await self.bucket.put(self.kitchen.node_id, self._latest)
        except BusError as error:
            log.info("SystemStatus not kept: %s", error)
