"""What the nodes of a Supervisor's bakes say of themselves: Performance, and messages to their cohorts.

    first bake on a node ──→ subscribed ── its last bake ended, and a while after ──→ dropped

Guarantees: nobody asks for it, and no bake waits for it; a reader that is slow loses the oldest (`dropped`
counts), never the newest. Left out: what was said before the first bake or while the bus was away: core only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bakemesh.bus.errors import BusError
from bakemesh.protocol import subjects
from bakemesh.protocol.builder.messages import CohortMessage, Performance
from bakemesh.supervisor.errors import Closed

if TYPE_CHECKING:
    from bakemesh.bus import Bus
    from bakemesh.bus.verbs import Subscription
    from bakemesh.protocol.admit import Delivery
    from bakemesh.protocol.identity import Identity
    from bakemesh.supervisor.status import StatusFeed

log = logging.getLogger(__name__)
LINGER_S = 5.0  # one bake after the other on a node are not each a subscription
KEPT = 256
TYPES = (Performance.TYPE, CohortMessage.TYPE)
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Notice:
    """One message of a node, or to it as a member of a cohort. `sender` is its party."""

    node_id: str
    sender: str
    message: Performance | CohortMessage


@dataclass(slots=True)
class _Held:
    """A node, and which bakes are on it."""

    bakes: set[Key] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class LiveNotices:
    """The subscriptions of one Supervisor. `latest`: the last Performance of each node that is subscribed."""

    def __init__(self, bus: Bus, *, linger_s: float = LINGER_S) -> None:
        self._bus, self._linger_s = bus, linger_s
        self._nodes: dict[str, _Held] = {}
        self._readers: weakref.WeakSet[NoticeReader] = weakref.WeakSet()
        self._closed = False
        self.latest: dict[str, Performance] = {}

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that are listened to now."""
        return frozenset(self._nodes)

    def hold(self, identity: Identity, feed: StatusFeed) -> None:
        """Listens to the node of a bake until it has ended, or nobody holds it any more."""
        node_id, key = identity.node_id, identity.key
        held = self._nodes.get(node_id)
        if self._closed or feed.log.terminal is not None or (held is not None and key in held.bakes):
            return
        if held is None:
            held = self._nodes[node_id] = _Held()
            held.task = asyncio.get_running_loop().create_task(
                self._listen(node_id, held), name=f"notices {node_id}"
            )
        held.bakes.add(key)
        held.changed.set()
        feed.on_terminal(lambda: self._let_go(node_id, key))
        weakref.finalize(feed, self._let_go, node_id, key).atexit = False

    def reader(self) -> NoticeReader:
        """An iterator over what comes from now on."""
        reader = NoticeReader()
        self._readers.add(reader)
        return reader

    async def close(self, reason: str) -> None:
        """Unsubscribes; readers end with Closed."""
        self._closed = True
        for reader in list(self._readers):
            reader.end(Closed(reason))
        tasks = [held.task for held in self._nodes.values() if held.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _let_go(self, node_id: str, key: Key) -> None:
        held = self._nodes.get(node_id)
        if held is not None and not self._closed:
            held.bakes.discard(key)
            held.changed.set()

    async def _listen(self, node_id: str, held: _Held) -> None:
        subscribed: list[Subscription] = []
        try:
            for kind in TYPES:
                wanted = subjects.pattern(self._bus.mesh, kind, node_id=node_id)
                subscribed.append(await self._bus.subscribe(wanted, self._on_message))
            while True:
                held.changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if held.bakes else self._linger_s):
                        await held.changed.wait()
                        continue
                break
        except BusError as error:  # without the right to it a Supervisor bakes all the same
            log.info("node %s is not listened to: %s", node_id, error)
            await self._until_idle(held)
        finally:
            self._nodes.pop(node_id, None)
            self.latest.pop(node_id, None)
            for each in subscribed:
                with contextlib.suppress(BusError):
                    await each.stop()

    async def _until_idle(self, held: _Held) -> None:
        """A refusal is not asked for again with every bake."""
        while held.bakes:
            held.changed.clear()
            await held.changed.wait()

    def _on_message(self, delivery: Delivery) -> None:
        message, subject = delivery.received.message, delivery.subject
        if isinstance(message, Performance) and subject.node_id in self._nodes:
            self.latest[subject.node_id] = message
        if isinstance(message, Performance | CohortMessage):
            notice = Notice(subject.node_id, subject.party, message)
            for reader in list(self._readers):
                reader.offer(notice)


class NoticeReader:
    """`async for notice in supervisor.notices()`; `dropped`: how many it was too slow for."""

    def __init__(self, kept: int = KEPT) -> None:
        self.dropped = 0
        self._found: deque[Notice] = deque(maxlen=kept)
        self._news = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None

    def offer(self, notice: Notice) -> None:
        """One more; the oldest goes where there is no room."""
        if self._ended:
            return
        self.dropped += len(self._found) == self._found.maxlen
        self._found.append(notice)
        self._news.set()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes; who iterates gets what is there, and then the error."""
        self._ended, self._error = True, error
        self._news.set()

    def __aiter__(self) -> NoticeReader:
        return self

    async def __anext__(self) -> Notice:
        while not self._found:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._found.popleft()

    async def aclose(self) -> None:
        """Ends the iteration; more than once is harmless."""
        self._found.clear()
        self.end()

    async def release(self) -> None:
        """It holds nothing of the bus."""
