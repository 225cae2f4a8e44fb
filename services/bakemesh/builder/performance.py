"""Performance: what the node's machine is busy with, every five seconds, on core.

Nobody waits for it and none of it is kept: one that is lost is followed by the next. The look at the machine
is taken in a thread, for a file system may hang. Left out: how it is read (`machine`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from bakemesh.builder.machine import Machine, Sample
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.protocol.builder.messages import Performance
from bakemesh.protocol.rights import builder_name
from bakemesh.protocol.subjects import NO_KEY, build

log = logging.getLogger(__name__)
EVERY_S = 5.0
Queues = Callable[[], Mapping[str, int]]


def message(sample: Sample, queues: Mapping[str, int], *, node: str, node_id: str) -> Performance:
    """The sample as it is said. Pure."""
    memory, disk = sample.memory, sample.disk
    return Performance(
        node=node,
        node_id=node_id,
        cpu=None if sample.cpu is None else round(sample.cpu, 4),
        load=None if sample.load is None else round(sample.load, 2),
        memory=memory.used if memory else None,
        memorytotal=memory.total if memory else None,
        disk=disk.used if disk else None,
        disktotal=disk.total if disk else None,
        queues=dict(queues),
        temperature=None if sample.temperature is None else round(sample.temperature, 1),
    )


class Speaker:
    """Says it for one node. `queues` gives the depth of each queue by its name."""

    def __init__(self, bus: Bus, node: str, node_id: str, state: Path, queues: Queues) -> None:
        self._bus, self._node, self._node_id, self._queues = bus, node, node_id, queues
        self._machine = Machine(state)
        self._subject = build(bus.mesh, node_id, builder_name(node_id), NO_KEY, Performance.TYPE)

    async def run(self) -> None:
        """Every five seconds, for ever; the first at once, so that who has just come need not wait."""
        loop = asyncio.get_running_loop()
        while True:
            sample = await asyncio.to_thread(self._machine.sample, loop.time())
            said = message(sample, self._queues(), node=self._node, node_id=self._node_id)
            try:
                await self._bus.publish(self._subject, said)
            except BusError as error:
                log.debug("Performance not published: %s", error)
            await asyncio.sleep(EVERY_S)
