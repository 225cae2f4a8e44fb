"""The nodes of the mesh, as they report: SystemStatus on core, and what lies in the nodes bucket.

The bucket is read at the start and after every reconnect, where core messages may have been missed; only a
node that is alive counts there, one whose Builder holds its claim. A hub that is out of reach keeps nobody
near from being heard.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusClosed, BusError, NotFound
from bakemesh.bus.events import Event as BusEvent
from bakemesh.bus.events import Reconnected, SlowConsumer
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import SystemStatus
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.message import decode
from bakemesh.protocol.rights import builder_name
from bakemesh.protocol.subjects import SYSTEM_STATUS, pattern
from bakemesh.startup import core
from bakemesh.startup.desk import Desk
from bakemesh.startup.owners import Owners
from bakemesh.startup.state import Reported
from bakemesh.startup.telling import Teller

log = logging.getLogger(__name__)
AGAIN_S = 2.0
SOON_S, MOST_S = 0.2, 5.0


class Watching:
    """Hands every report to the desk, one after the other."""

    def __init__(self, bus: Bus, desk: Desk, tell: Teller, owners: Owners) -> None:
        self.bus, self.desk, self.tell, self.owners = bus, desk, tell, owners
        self._bucket = Bucket(bus, storage.nodes_bucket(bus.mesh))
        # The last one of each node: who reports faster than a step takes is heard as he is now.
        self._latest: dict[str, SystemStatus] = {}
        self._spoke: set[str] = set()  # since the link came up: what the bucket holds of them may be older
        self._heard, self._look = asyncio.Event(), asyncio.Event()
        self._look.set()

    async def run(self) -> None:
        """For ever. Raises AccessDenied, BusClosed."""
        unhook = self.bus.on_event(self._on_event)
        subscription = await self.bus.subscribe(pattern(self.bus.mesh, SYSTEM_STATUS), self._on_status)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._hand_over())
                group.create_task(self._read())
        finally:
            unhook()
            await subscription.stop()

    def _on_event(self, event: BusEvent) -> None:
        if isinstance(event, Reconnected | SlowConsumer):
            self._spoke.clear()
            self._look.set()

    def _on_status(self, delivery: Delivery) -> None:
        status, subject = delivery.received.message, delivery.subject
        if not isinstance(status, SystemStatus):
            return
        if status.node_id == subject.node_id and subject.party == builder_name(subject.node_id):
            self._spoke.add(status.node_id)
            self._take(status)

    def _take(self, status: SystemStatus) -> None:
        self._latest[status.node_id] = status
        self._heard.set()

    async def _hand_over(self) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            latest, self._latest = self._latest, {}
            for status in latest.values():
                self.owners.heard(status.node_id, status.components)
                await self.desk.post(
                    Reported(
                        status.node_id,
                        status.node,
                        status.boot,
                        status.configcomplete,
                        status.draining,
                        time.monotonic(),
                    )
                )
                self._tell_components(status)

    def _tell_components(self, status: SystemStatus) -> None:
        goal = core.homes(self.desk.state).get(status.node_id)
        if goal is None or not self.desk.state.up:
            return
        ours: list[dict[str, Any]] = [
            each for each in status.components if goal.parts.get(str(each.get("name"))) == each.get("digest")
        ]
        self.tell.components(status.node_id, status.node, ours)

    async def _read(self) -> None:
        pause = SOON_S
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                entries = await self._bucket.entries()
            except NotFound:
                continue  # no Builder was ever on this mesh; the first one will be heard
            except BusClosed:
                raise
            except BusError as error:
                log.info("the nodes bucket cannot be read now: %s", error)
                await asyncio.sleep(AGAIN_S)
                self._look.set()
                continue
            for key, entry in entries.items():
                status = _status(key, entry.value)
                if status is not None and storage.claim_key(key) in entries and key not in self._spoke:
                    self._take(status)
            if storage.claim_key(self.desk.settings.node_id) not in entries:
                continue  # the own Builder is not there; it will be heard
            if (
                not self.desk.state.up
            ):  # it said that it is there before this listened, and keeps that in a moment
                await asyncio.sleep(pause)
                pause = min(pause * 2, MOST_S)
                self._look.set()


def _status(key: str, value: bytes) -> SystemStatus | None:
    if "." in key:
        return None
    try:
        found = decode(value).message
    except MessageError:
        return None
    return found if isinstance(found, SystemStatus) and found.node_id == key else None
