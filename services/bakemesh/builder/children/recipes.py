"""The Builder as a Supervisor: `builder-<NodeID>`, with N from the journal, always over the bus.

`run` opens the Supervisor's subscriptions and runs the errands until it is cancelled; a step that comes
before that waits. Source: protocol/builder-v1.md, "Child recipes".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from bakemesh.builder.children.book import ChildBook
from bakemesh.builder.children.errands import Errands
from bakemesh.builder.children.follow import Following, House
from bakemesh.builder.clock import Clock
from bakemesh.builder.journal import Journal
from bakemesh.builder.steps.base import Children
from bakemesh.bus import Bucket, Bus
from bakemesh.bus.errors import BusError
from bakemesh.protocol import storage
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import Supervisor


class Parent(Protocol):
    """What is asked of the session whose step has the child."""

    @property
    def bake(self) -> int:
        """Its number in the journal."""

    @property
    def identity(self) -> Identity:
        """Its five entries."""

    def child_rests(self, paused: bool) -> None:
        """Takes note that the child said Paused or Restarted."""


class ChildRecipes:
    """All children of one Builder."""

    def __init__(
        self,
        bus: Bus,
        journal: Journal,
        node_id: str,
        *,
        unreachable_s: float = 300.0,
        clock: Clock | None = None,
    ) -> None:
        """`unreachable_s`: a child's node that is silent for so long fails the step; 0 waits for ever."""
        clock = clock or Clock()
        self._book = ChildBook(journal, clock.wall)
        self._supervisor = Supervisor(bus, f"builder-{node_id}", self._book)
        self._errands = Errands(self._supervisor, self._book)
        self._ready = asyncio.Event()
        self._house = House(
            supervisor=self._supervisor,
            book=self._book,
            errand=self._errands.add,
            ready=self._ready,
            unreachable_s=unreachable_s,
            clock=clock.monotonic,
            claimed=_claims(bus),
        )

    def of(self, parent: Parent) -> Children:
        """The children of one step of `parent`."""
        return Following(self._house, parent.bake, parent.child_rests)

    async def run(self) -> None:
        """Opens, cancels what an earlier life left behind, and serves until cancelled. Raises a bus error."""
        left_behind = self._book.open_children()
        async with self._supervisor:
            try:
                for child in left_behind:
                    self._errands.add(child)
                self._ready.set()
                await asyncio.Event().wait()
            finally:
                self._ready.clear()
                await self._errands.close()


def _claims(bus: Bus) -> Callable[[str], Awaitable[bool]]:
    async def claimed(node_id: str) -> bool:
        """Whether a Builder holds the claim of this node, as far as can be seen from here."""
        try:
            bucket = Bucket(bus, storage.nodes_bucket(bus.mesh))
            return await bucket.get(storage.claim_key(node_id)) is not None
        except BusError:
            return False

    return claimed
