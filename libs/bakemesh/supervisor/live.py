"""Status as it comes live: core subscriptions, handed to the feed of each bake.

One subscription a message type for all bakes of one Supervisor, made before its first recipe is sent; six
more for each bake of somebody else. Guarantees: after a reconnect or a slow consumer every feed knows that
it may have missed something; a feed lives as long as somebody holds it. Left out: reading the stream
(`status`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from bakemesh.bus.events import Closed as BusGone
from bakemesh.bus.events import Event, Reconnected, SlowConsumer
from bakemesh.protocol import subjects
from bakemesh.protocol.builder.messages import BakeStatus
from bakemesh.supervisor.control import ControlSequence
from bakemesh.supervisor.errors import Closed
from bakemesh.supervisor.status import StatusFeed

if TYPE_CHECKING:
    from bakemesh.bus import Bus
    from bakemesh.bus.verbs import Subscription
    from bakemesh.protocol.admit import Delivery
    from bakemesh.protocol.identity import Identity
    from bakemesh.supervisor.streams import ReverseStreams

TYPES = tuple(f"{subjects.BAKE}.{name}" for name in ("Status", *subjects.OUTCOMES))
Key = tuple[str, str]  # (Supervisor, RecipeID)


class LiveStatus:
    """The feeds of a Supervisor's bakes, and what fills them live."""

    def __init__(self, bus: Bus, name: str, streams: ReverseStreams, controls: ControlSequence) -> None:
        self._bus, self._name, self._streams, self._controls = bus, name, streams, controls
        self._feeds: WeakValueDictionary[Key, StatusFeed] = WeakValueDictionary()
        self._own: list[Subscription] = []
        self._foreign: dict[Key, list[Subscription]] = {}
        self._unhook: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Subscribes to this Supervisor's own bakes. Raises AccessDenied, NotConnected, BusClosed."""
        self._unhook = self._bus.on_event(self._on_event)
        mesh = self._bus.mesh
        self._own = await self._subscribe([subjects.pattern(mesh, kind, party=self._name) for kind in TYPES])

    async def close(self, reason: str) -> None:
        """Unsubscribes, and ends with Closed whoever waits."""
        self._unhook()
        for feed in list(self._feeds.values()):
            feed.close(Closed(f"{reason}; bake {feed.recipe_id} goes on"))
        stopping = [*self._own, *(one for several in self._foreign.values() for one in several)]
        self._own, self._foreign = [], {}
        await asyncio.gather(*(subscription.stop() for subscription in stopping))

    def feed(self, identity: Identity, *, suspect: bool = False) -> StatusFeed:
        """The feed of a bake, a new one where nobody holds one. `suspect`: it began before this was asked."""
        feed = self._feeds.get(identity.key)
        if feed is None:
            feed = StatusFeed(
                identity.recipe_id,
                lambda start: self._streams.status(identity, start),
                lambda: self._streams.status_count(identity),
                suspect=suspect,
            )
            feed.on_new = self._on_new
            self._feeds[identity.key] = feed
        return feed

    async def hear_foreign(self, identity: Identity) -> None:
        """Subscribes to one bake of another Supervisor. Raises AccessDenied without an operator's rights."""
        if identity.supervisor != self._name and identity.key not in self._foreign:
            self._foreign[identity.key] = await self._subscribe(
                [
                    subjects.pattern(self._bus.mesh, kind, party=identity.supervisor, key=identity.recipe_id)
                    for kind in TYPES
                ]
            )

    async def drop(self, key: Key) -> None:
        """Lets go of one bake; who waits for it ends with Closed."""
        if (feed := self._feeds.pop(key, None)) is not None:
            feed.close(Closed(f"bake {feed.recipe_id} was closed here; it goes on"))
        await asyncio.gather(*(one.stop() for one in self._foreign.pop(key, [])))

    async def _subscribe(self, patterns: Sequence[str]) -> list[Subscription]:
        """One subscription a pattern, all or none."""
        made = await asyncio.gather(
            *(self._bus.subscribe(one, self._on_live) for one in patterns), return_exceptions=True
        )
        subscriptions = [one for one in made if not isinstance(one, BaseException)]
        for one in made:
            if isinstance(one, BaseException):
                await asyncio.gather(*(subscription.stop() for subscription in subscriptions))
                raise one
        return subscriptions

    def _on_live(self, delivery: Delivery) -> None:
        status = delivery.received.message
        if not isinstance(status, BakeStatus):
            return
        key = (delivery.subject.party, delivery.subject.key)
        feed = self._feeds.get(key)
        if feed is not None and status.identity.key == key:
            feed.offer(status)

    def _on_new(self, status: BakeStatus) -> None:
        if status.kind == "ack" and status.issuedby == self._name and status.ctrlseq is not None:
            self._controls.seen(status.identity.key, status.ctrlseq)

    def _on_event(self, event: Event) -> None:
        for feed in list(self._feeds.values()):
            if isinstance(event, Reconnected | SlowConsumer):
                feed.suspect()
            elif isinstance(event, BusGone):
                feed.close(Closed(f"the bus connection is gone: {event.reason}"))
