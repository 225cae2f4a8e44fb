"""What a Builder has on the hub: buckets and inbox, the node's claim, the source lists.

On a shared server all of it is there before the Builder is ready. A leaf is ready with its own streams, and
this is done when the link is up: `run` tries until it is, and a claim that somebody else holds ends the
Builder then.
"""

from __future__ import annotations

import asyncio
import logging

from bakemesh.bus.claim import Claim, ClaimHeld, builder_claim
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.hub import Sources
from bakemesh.bus.streams import Sizes, ensure_hub

log = logging.getLogger(__name__)
PAUSE_S = 1.0


class NodeTaken(Exception):
    """Raised when the node has a Builder already; the process exits with code 6."""


class Hubward:
    """One Builder's part of the hub."""

    def __init__(self, bus: Bus, node_id: str, owner: str, sizes: Sizes) -> None:
        self.bus, self.node_id, self.owner, self.sizes = bus, node_id, owner, sizes
        self.claim: Claim = builder_claim(bus, node_id, owner)
        self.sources = Sources(bus, sizes)
        self.up = asyncio.Event()

    async def make(self) -> None:
        """Makes the hub's objects and takes the claim. Raises NodeTaken, and a BusError where it cannot be
        reached. A restart on the same state folder takes the claim over at once.
        """
        await ensure_hub(self.bus, self.sizes, node_id=self.node_id)
        try:
            await self.claim.take()
        except ClaimHeld as held:
            raise NodeTaken(
                f"node {self.node_id} has a Builder already ({held}); "
                "stop it, or give this node another id with --node NAME=ID"
            ) from held
        self.up.set()

    async def run(self) -> None:
        """For ever: what could not be made at the start is made when the hub is there. Raises NodeTaken."""
        while not self.up.is_set():
            try:
                await self.make()
            except BusError as error:
                log.info("the hub is not there yet: %s", error)
                await asyncio.sleep(PAUSE_S)
        await self.sources.start()
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Gives the claim and the lock back, as far as the hub can be reached."""
        await self.sources.close()
        await self.claim.release()
