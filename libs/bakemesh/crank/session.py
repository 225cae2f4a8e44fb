"""One crank's life on the bus: what wakes it, what it posts, what it shows. Opened before the crank is
called, closed behind it.

Guarantees: when `open` returns, the server has every subscription, so what is posted from then on is heard.
A link that is away is waited for. Left out: loading and running the function, and telling the Builder.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError, NotConnected
from bakemesh.bus.events import Closed, Denied, Disconnected, Event, Reconnected
from bakemesh.crank.api import Api
from bakemesh.crank.backlog import Backlog, Item
from bakemesh.crank.deliver import Delivered
from bakemesh.crank.durable import StoredPosts
from bakemesh.crank.mailbox import Mailbox
from bakemesh.crank.messages import message_for
from bakemesh.crank.posting import Poster
from bakemesh.crank.ready import ReadyNotes
from bakemesh.crank.serviced import alive
from bakemesh.crank.start import Start
from bakemesh.crank.triggers import Triggers
from bakemesh.crank.watching import Watches
from bakemesh.protocol import subjects
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.rights import builder_name

if TYPE_CHECKING:
    from bakemesh.supervisor import Supervisor

log = logging.getLogger(__name__)

# Live values that every component has, once there is something to say.
DROPPED, LOST, ASIDE = "dropped", "lost-posts", "put-aside"
T = TypeVar("T")


class Session:
    """See the module. `closed` is set, with the reason, where the server ends the connection for good."""

    def __init__(self, bus: Bus, start: Start, *, backlog: Backlog | None = None) -> None:
        self.bus, self.start = bus, start
        self.mailbox = Mailbox(backlog)
        self.triggers = Triggers(start.spec.triggers)
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._denied: set[Denied] = set()  # said once each
        self._counts = dict.fromkeys((DROPPED, LOST, ASIDE), 0)
        self._watches = Watches(bus, start.name, start.instance)
        self._ready = ReadyNotes(bus, self.triggers.ready, self.mailbox)
        self._stored = StoredPosts(
            bus,
            start.name,
            self.triggers.stored,
            self.mailbox,
            start.folder / "attempts",
            partial(self._count, ASIDE),
        )
        self._supervisor: Supervisor | None = None
        self._off: Callable[[], None] = lambda: None
        self.api = Api(
            start, self.mailbox, Poster(bus, start.spec, partial(self._count, LOST)), self._watches
        )

    async def open(self) -> None:
        """Subscribes. Raises AccessDenied, which names the subject, and BusClosed."""
        self._off = self.bus.on_event(self._on_event)
        for pattern in self.triggers.patterns:
            subject = subjects.pattern(self.bus.mesh, pattern)
            await _there(partial(self.bus.subscribe, subject, partial(self._on_message, pattern)))
        own = partial(
            subjects.build,
            self.bus.mesh,
            self.start.node_id,
            builder_name(self.start.node_id),
            self.start.name,
        )
        delivered = Delivered(self.start.name, self.triggers, self.mailbox)
        await _there(partial(self.bus.serve, own(subjects.COMPONENT_DELIVER), delivered))
        health = self.start.spec.health
        if health is not None and health.subject is not None:
            await _there(partial(self.bus.serve, own(health.subject), alive))
        await _there(self._stored.start)
        if self.triggers.ready:
            await self._ready.start()
        if self.start.spec.supervisor:
            self.api._supervisor = self._supervisor = await _there(self._supervise)

    def stop(self) -> None:
        """The crank is to end: it gets no more messages."""
        self.mailbox.stop()

    async def close(self, *, well: bool) -> None:
        """Ends it. `well`: the crank came through, with the message in its hands as well."""
        self._off()
        self.mailbox.stop()
        if well:
            self.mailbox.finish()
        with contextlib.suppress(BusError):
            if self._supervisor is not None:
                await self._supervisor.close()
            await self._ready.close()
            await self._stored.close()
            await self._watches.close()

    async def _supervise(self) -> Supervisor:
        from bakemesh.supervisor import Supervisor  # costs as much as all the rest

        made = Supervisor(self.bus, self.start.name, state=self.start.supervisor_state)
        return await made.open()

    # -- what comes in

    def _on_message(self, pattern: str, delivery: Delivery) -> None:
        type_ = delivery.subject.type
        woken = self.triggers.of(pattern, type_)
        if woken and type_ == subjects.READY:
            self._ready.live(delivery)
            return
        for trigger in woken:
            message = message_for(
                trigger.name, delivery.received, delivery.subject.party, delivery.subject.node_id
            )
            dropped = self.mailbox.put(Item(message, len(delivery.payload)), trigger.after_ms / 1000)
            if dropped:
                self._dropped(dropped)

    def _dropped(self, number: int) -> None:
        if not self._counts[DROPPED]:
            backlog = self.mailbox.backlog
            log.warning(
                "the crank is slower than its messages: more than %d of them (or %d bytes) wait, and the "
                "oldest that are not durable are dropped from now on; see the live value %r",
                backlog.most,
                backlog.most_bytes,
                DROPPED,
            )
        self._count(DROPPED, number)

    def _count(self, what: str, number: int = 1) -> None:
        self._counts[what] += number
        self._watches.count(what, self._counts[what])

    def _on_event(self, event: Event) -> None:
        match event:
            case Disconnected() | Reconnected():
                self._stored.again()
                if isinstance(event, Reconnected):
                    self._ready.again()
            case Denied() if event not in self._denied:
                self._denied.add(event)
                log.error("the server does not let this component %s %s", event.operation, event.subject)
            case Closed():
                if not self.closed.done():
                    self.closed.set_result(event.reason)


async def _there(attempt: Callable[[], Awaitable[T]]) -> T:
    """The attempt's result; again and again while the link is away."""
    while True:
        try:
            return await attempt()
        except NotConnected as error:
            log.info("waiting for the bus: %s", error)
