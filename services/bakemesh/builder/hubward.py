"""What a Builder has on the hub: buckets and inbox, the node's claim, the source lists.

On a shared server all of it is there before the Builder is ready. A leaf is ready with its own streams, and
this is done when the link is up: `run` tries until it is. A claim that somebody else holds ends the Builder,
then and at any time later; one that only cannot be renewed, because the hub is away, ends nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bakemesh.builder.folder import Holder, NodeTaken
from bakemesh.bus.claim import TTL_S, Claim, ClaimEvent, ClaimHeld, ClaimState, builder_claim
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.hub import Sources
from bakemesh.bus.streams import Sizes, ensure_hub

log = logging.getLogger(__name__)
PAUSE_S = 1.0


class Hubward:
    """One Builder's part of the hub."""

    def __init__(self, bus: Bus, node_id: str, holder: Holder, sizes: Sizes) -> None:
        self.bus, self.node_id, self.holder, self.sizes = bus, node_id, holder, sizes
        self.claim: Claim = builder_claim(bus, node_id, holder.life, former=holder.former)
        self.claim.on_change(self._on_claim)
        self.sources = Sources(bus, sizes)
        self.up = asyncio.Event()
        self.on_up: Callable[[], None] = lambda: None
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def make(self) -> None:
        """Makes the hub's objects and takes the claim. Raises NodeTaken, and a BusError where it cannot be
        reached. A restart on the same state folder takes the claim over at once; on a copy of it, or where it
        was moved to, the claim of the Builder before must have ended.
        """
        await ensure_hub(self.bus, self.sizes, node_id=self.node_id)
        wait_s = TTL_S + 1.0 if self.holder.copied else 0.0
        if wait_s and not await self.claim.try_take():
            log.info("waiting for the claim of the Builder before, up to %g s", wait_s)
        try:
            await self.claim.take(wait_s)
        except ClaimHeld as held:
            copy = " This state folder is a copy of that one's." if self.holder.copied else ""
            raise NodeTaken(
                f"node {self.node_id} has a Builder already ({held}); "
                f"stop it, or give this node another id with --node NAME=ID.{copy}"
            ) from held
        self.up.set()
        self.on_up()

    def _on_claim(self, event: ClaimEvent) -> None:
        if event.state is ClaimState.LOST and not self._lost.done():
            self._lost.set_result(event.detail)

    async def run(self) -> None:
        """For ever: what could not be made at the start is made when the hub is there. Raises NodeTaken."""
        while not self.up.is_set():
            try:
                await self.make()
            except BusError as error:
                log.info("the hub is not there yet: %s", error)
                await asyncio.sleep(PAUSE_S)
        await self.sources.start()
        winner = await asyncio.shield(self._lost)
        raise NodeTaken(
            f"node {self.node_id} was taken by another Builder ({winner}) while this one could not hold its "
            "claim; this one ends. Run one Builder a node, each on a state folder of its own"
        )

    async def close(self) -> None:
        """Gives the claim and the lock back, as far as the hub can be reached."""
        await asyncio.gather(self.sources.close(), self.claim.release())
