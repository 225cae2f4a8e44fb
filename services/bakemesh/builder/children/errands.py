"""Cancels children that nobody follows any more: those of a step that gave up on a silent node, and those
that a crash of this Builder left behind.

Guarantees: an errand is tried until the child is known to have ended, however long its node is away; a
recipe that still waits in the inbox is cancelled once its node has taken it. Left out: the child's output;
nobody asks for it.
"""

from __future__ import annotations

import asyncio
import logging

from bakemesh.builder.children.book import ChildBook
from bakemesh.bus.errors import AccessDenied, BusClosed, BusError
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import Bake, BakeUnknown, Closed, Supervisor, SupervisorError

log = logging.getLogger(__name__)
FIRST_S, LONGEST_S = 0.5, 30.0
UNKNOWN_TRIES = 6  # a recipe is neither in the inbox nor in the status stream for a moment while it is taken


class Errands:
    """The children to cancel, one task each."""

    def __init__(self, supervisor: Supervisor, book: ChildBook) -> None:
        self._supervisor, self._book = supervisor, book
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, child: Identity) -> None:
        """Takes over a child that the book has as open; a second time changes nothing."""
        if child.recipe_id not in self._tasks:
            task = asyncio.create_task(self._run(child), name=f"cancel {child.recipe_id}")
            self._tasks[child.recipe_id] = task
            task.add_done_callback(lambda _done: self._tasks.pop(child.recipe_id, None))

    async def close(self) -> None:
        """Stops trying; the book still has what is left."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, child: Identity) -> None:
        pause, unknown = FIRST_S, 0
        while True:
            try:
                done = await self._try(child)
                unknown = 0
            except BakeUnknown:
                unknown += 1
                done = unknown == UNKNOWN_TRIES
            except (AccessDenied, BusClosed, Closed) as error:
                log.error("child %s on %s cannot be cancelled: %s", child.recipe_id, child.node_id, error)
                return
            except (BusError, SupervisorError) as error:
                log.info("child %s on %s is not cancelled yet: %s", child.recipe_id, child.node_id, error)
                done = False
            if done:
                await self._book.closed(child)
                log.info("child %s on %s has ended", child.recipe_id, child.node_id)
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_S)

    async def _try(self, child: Identity) -> bool:
        """Whether the child is known to end."""
        # By its NodeID: the directory may not know the node any more.
        bake = await self._supervisor.attach(child.recipe_id, child.supervisor)
        try:
            return bake.terminal is not None or await cancel(bake)
        finally:
            await bake.close()


async def cancel(bake: Bake) -> bool:
    """Sends Cancel; whether the child is known to end by it. Raises what `Bake.cancel` does."""
    result = await bake.cancel()
    if result.accepted or result.code == Code.TERMINAL:
        return True
    if result.code == Code.UNAUTHORISED:
        log.error("child %s on %s refuses its Cancel: %s", bake.recipe_id, bake.node_id, result.summary)
        return True
    # unknown_recipe: its Builder has not taken it from the inbox yet; rate_limited: later.
    return False
