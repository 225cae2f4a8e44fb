"""The Builder's inbox: recipes and pushes for one node, each until it is acknowledged, in the order of each
store.

A durable consumer named as the node on the hub's inbox; on a leaf a second one on the leaf's own, so that a
node cut off still hears its own side. At most one message of each store is out at a time. Guarantees: a
message comes again until it is acknowledged, so one that was worked on may come twice, also once from each
store; while one is worked on, the server is told so; a request is always waiting at the server, so a
message comes at once. A store that cannot be reached is tried again for ever and does not hold up the
other. What a dead Builder had in its hands comes at once, not after the acknowledgement's time is over.
Left out: what the messages mean; that the same one comes twice.

`Source` is one such consumer by itself, under any name, on any stream.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from nats.aio.msg import Msg

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusClosed, BusError
from bakemesh.bus.events import Closed, Disconnected, Event, Reconnected
from bakemesh.bus.jsapi import JsApi
from bakemesh.bus.pulling import place, status
from bakemesh.protocol import storage, subjects

log = logging.getLogger(__name__)

ACK_WAIT_S = 30.0
_BATCH = 1000
_EXPIRES_S = 30.0
_BEAT_S = 2.0
_CONFIRM_S = 2.0
_CONFIRM_TRIES = 3
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Item:
    """One message of the inbox. End it with `ack` or `nak`."""

    def __init__(self, source: Source, msg: Msg, sequence: int, times: int) -> None:
        self._source, self._msg = source, msg
        self.subject: str = msg.subject
        self.payload: bytes = msg.data
        self.headers: Mapping[str, str] = msg.headers or {}
        self.stream, self.sequence = source.stream, sequence
        self.times = times  # how often the store has given it out, this time included

    async def ack(self) -> bool:
        """Removes it from its store. True when the store has confirmed it; false when it cannot be known:
        then it will come again.
        """
        return await self._source.confirm(self)

    async def nak(self, delay_s: float = 0.0) -> None:
        """Gives it back; it comes again after `delay_s`."""
        body = b"-NAK" + (json.dumps({"delay": int(delay_s * 1e9)}).encode() if delay_s else b"")
        await self._source.answer(self, body)

    async def put_aside(self) -> None:
        """Ends it unfinished: its consumer never gives it out again; it stays in the stream."""
        await self._source.answer(self, b"+TERM")

    @property
    def reply(self) -> str:
        """Where its acknowledgement goes."""
        return str(self._msg.reply)


class Inbox:
    """What arrives for `node_id`. `async for item in inbox` runs until `close`.

    async with Inbox(bus, node_id) as inbox:
        async for item in inbox: ...; await item.ack()
    """

    def __init__(self, bus: Bus, node_id: str, *, ack_wait_s: float = ACK_WAIT_S) -> None:
        self._bus = bus
        self._items: asyncio.Queue[Item | None] = asyncio.Queue()
        wanted = subjects.pattern(bus.mesh, "Psyclone.Builder.>", node_id=node_id)
        stores = [(bus.hub_api, storage.inbox_stream(bus.mesh))]
        if bus.on_leaf:
            stores.insert(0, (bus.api, storage.leaf_inbox_stream(bus.mesh, node_id)))
        self._sources = [
            Source(bus, api, stream, node_id, wanted, ack_wait_s, self._items.put_nowait)
            for api, stream in stores
        ]
        self._off: Callable[[], None] = lambda: None
        self._failed: str | None = None

    @property
    def waiting(self) -> int:
        """How many items have come and were not taken."""
        return self._items.qsize()

    async def start(self) -> None:
        """Begins. Raises AccessDenied, NotConnected, BusClosed; a store that is not there yet is waited
        for.
        """
        self._off = self._bus.on_event(self._on_event)
        for source in self._sources:
            await source.start()

    async def close(self) -> None:
        """Ends it; an item that is out and not acknowledged comes again to the next one."""
        self._off()
        for source in self._sources:
            await source.close()
        self._items.put_nowait(None)

    async def __aenter__(self) -> Inbox:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        while True:
            item = await self._items.get()
            if item is None:
                self._items.put_nowait(None)
                if self._failed is not None:
                    raise BusClosed(f"inbox: {self._failed}")
                raise StopAsyncIteration
            return item

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Closed):
            self._failed = event.reason
            self._items.put_nowait(None)
        elif isinstance(event, Disconnected | Reconnected):
            for source in self._sources:
                source.again()


class Source:
    """One store's durable consumer `name` with one filter, `wanted`: keeps a request waiting at the server,
    and tells that an item is worked on. `give` is called with each Item as it is read; the next one comes
    when that was ended. `inactive_s`: the server forgets a consumer that is unused so long; None: never.
    """

    def __init__(
        self,
        bus: Bus,
        api: JsApi,
        stream: str,
        name: str,
        wanted: str,
        ack_wait_s: float,
        give: Callable[[Item], None],
        *,
        inactive_s: float | None = None,
    ) -> None:
        self.stream = stream
        self._link, self._api = bus.link, api
        self.name, self._wanted, self._give = name, wanted, give
        self._ack_wait_s, self._inactive_s = ack_wait_s, inactive_s
        self._inbox = f"_INBOX.{bus.settings.party}.{secrets.token_hex(12)}"
        self._asked = 0
        self._out = False
        self._made = False
        self._hand: Item | None = None  # the one that is out
        self._heard = 0.0
        self._news = asyncio.Event()
        self._pause = _FIRST_PAUSE_S
        self._subscription: Any = None
        self._runner: asyncio.Task[None] | None = None
        self._time = asyncio.get_running_loop().time

    async def start(self) -> None:
        """Begins. Raises AccessDenied, NotConnected, BusClosed; a stream that is not there is waited for."""
        self._subscription = await self._link.listen(f"{self._inbox}.*", self._on_message)
        self._runner = asyncio.create_task(self._run(), name=f"inbox {self.stream}")

    async def close(self) -> None:
        """Ends it; an item that is out comes again to the next one."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        if self._subscription is not None:
            await self._link.unlisten(self._subscription)

    def again(self) -> None:
        """The link went down or is back: the request that was waiting is gone."""
        self._made = self._out = False
        self._pause = _FIRST_PAUSE_S
        self._news.set()

    # -- asking

    async def _run(self) -> None:
        while True:
            self._news.clear()
            try:
                wait = await self._step()
            except BusClosed:
                return
            except BusError as error:
                log.info("%s: cannot be read now: %s", self.stream, error)
                self._made = self._out = False
                wait, self._pause = self._pause, min(_LONGEST_PAUSE_S, self._pause * 2)
            try:
                async with asyncio.timeout(wait):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _step(self) -> float:
        if not self._link.connected:
            return _LONGEST_PAUSE_S
        if not self._made:
            await self._make()
        if self._out and self._time() - self._heard > 2.5 * _BEAT_S:
            log.info("%s: silent, asking again", self.stream)
            self._made = self._out = False
            return 0
        if not self._out:
            await self._ask()
        return await self._tell_working()

    async def _make(self) -> None:
        """Makes the consumer, or finds it as it is; takes back what an earlier life of it left unanswered."""
        config: dict[str, Any] = {
            "name": self.name,
            "durable_name": self.name,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": int(self._ack_wait_s * 1e9),
            "max_deliver": -1,
            "max_ack_pending": 1,
            "filter_subject": self._wanted,
        }
        if self._inactive_s is not None:
            config["inactive_threshold"] = int(self._inactive_s * 1e9)
        found = await self._api.create_consumer(self.stream, config)
        self._made, self._pause = True, _FIRST_PAUSE_S
        if found.get("num_ack_pending") and self._hand is None:
            # Only one is out at a time, so it is the last one delivered, and nobody here has it. The server
            # knows it by its two sequences; number of deliveries, time and pending count are not looked at.
            at = found["delivered"]
            subject = f"$JS.ACK.{self.stream}.{self.name}.1.{at['stream_seq']}.{at['consumer_seq']}.0.0"
            await self._link.send(subject, b"-NAK")

    async def _ask(self) -> None:
        self._asked += 1
        self._out, self._heard = True, self._time()
        request = {
            "batch": _BATCH,
            "expires": int(_EXPIRES_S * 1e9),
            "idle_heartbeat": int(_BEAT_S * 1e9),
        }
        await self._link.send(
            self._api.next_subject(self.stream, self.name),
            json.dumps(request).encode(),
            f"{self._inbox}.{self._asked}",
        )

    async def _tell_working(self) -> float:
        if self._hand is not None:
            await self._link.send(self._hand.reply, b"+WPI")
        return min(_BEAT_S, self._ack_wait_s / 4)

    # -- what comes in

    def _on_message(self, msg: Msg) -> None:
        self._heard = self._time()
        where = place(msg.reply)
        if where is None:
            code, text = status(msg)
            if code == 100 or msg.subject != f"{self._inbox}.{self._asked}":
                return
            self._out = False
            if code not in (404, 408):
                log.info("%s: the request ended: %d %s", self.stream, code, text)
                self._made = False
            self._news.set()
            return
        self._hand = Item(self, msg, where.sequence, where.times)
        self._give(self._hand)

    # -- answering

    async def confirm(self, item: Item) -> bool:
        """Acknowledges and waits for the store's word."""
        for _ in range(_CONFIRM_TRIES):
            try:
                await self._link.ask(item.reply, b"+ACK", _CONFIRM_S)
            except BusClosed:
                break
            except BusError as error:
                log.info("%s: acknowledgement of %d not confirmed: %s", self.stream, item.sequence, error)
                continue
            self._let_go(item)
            return True
        # Not known: looking at the consumer again tells, and brings it again at once if it is still out.
        self._let_go(item)
        self._made = False
        self._news.set()
        return False

    async def answer(self, item: Item, body: bytes) -> None:
        """Answers without waiting. Never raises for a link that is down: the item comes again by itself."""
        self._let_go(item)
        try:
            await self._link.send(item.reply, body)
        except BusError as error:
            log.info("%s: %d could not be given back: %s", self.stream, item.sequence, error)

    def _let_go(self, item: Item) -> None:
        if self._hand is item:
            self._hand = None
