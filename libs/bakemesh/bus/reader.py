"""Reading a stream: `read` gives every message behind a filter, in order, each once, for as long as wanted.

A named ephemeral pull consumer of a random 128-bit name with exactly one filter (so that the server can
permit it), no acknowledgements, large requests. Guarantees: what is given has ascending sequences and
leaves nothing out that the stream holds, across a lost link, a restarted server, a vanished consumer: a new
consumer goes on behind the last message given. A slow reader holds back at most two requests' worth of
memory, on either side. Left out: deciding whether a message is a foreign one, and whether something was
purged; both are told by the messages themselves.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

from nats.aio.msg import Msg

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusClosed, BusError, NotConnected, NotFound, StoreUnavailable
from bakemesh.bus.events import Closed, Disconnected, Event, Reconnected
from bakemesh.bus.jsapi import JsApi, Stored
from bakemesh.bus.pulling import Place, place, status

log = logging.getLogger(__name__)

BATCH = 1024
BATCH_BYTES = 8 * 2**20
_HEAD_ROOM = 64 * 2**10  # subject, headers and reply of a message count as well
_EXPIRES_S = 30.0
_BEAT_S = 3.0
_IDLE_S = 15.0  # the server removes a consumer that nobody asks for so long
_ANSWER_S = 5.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_GONE_S = 10.0  # a stream that a restarting server does not know yet


async def read(
    bus: Bus,
    stream: str,
    filter_subject: str,
    *,
    start_sequence: int = 1,
    end: Literal["follow", "last"] = "follow",
    api: JsApi | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> AsyncGenerator[Stored]:
    """Messages of `stream` on `filter_subject` from `start_sequence` on.

    `follow` goes on for ever; `last` ends with what is stored now. `api`: another JetStream than the
    server's own, for instance `bus.hub_api`. To end early, close the iterator (`contextlib.aclosing`).
    Raises NotFound where the stream does not exist, AccessDenied, BusClosed; only before the first message
    NotConnected, and with `last` StoreUnavailable, StoreTimeout.
    """
    reader = Reader(bus, stream, filter_subject, start_sequence, end, api or bus.api, batch_bytes)
    try:
        await reader.open()
        while batch := await reader.batch():
            for message in batch:
                yield message
    finally:
        await reader.close()


class Reader:
    """What `read` runs; gives messages in batches."""

    def __init__(
        self,
        bus: Bus,
        stream: str,
        filter_subject: str,
        start_sequence: int,
        end: Literal["follow", "last"],
        api: JsApi,
        batch_bytes: int,
    ) -> None:
        self.stream, self._filter = stream, filter_subject
        self._link, self._api = bus.link, api
        self._follow = end == "follow"
        self._next = max(1, start_sequence)
        self._bound = 0  # `last`: the sequence that ends it
        self._inbox = f"_INBOX.{bus.settings.party}.{secrets.token_hex(12)}"
        self._batch_bytes = max(batch_bytes, bus.max_payload + _HEAD_ROOM)
        self._consumer: str | None = None
        self._delivered = 0  # the consumer's own count: a step of more than one is a loss
        self._asked = 0  # the number of the request that is out; its answers are told apart by it
        self._out = False
        self._got = 0
        self._buffer: list[Stored] = []
        self._ended = False
        self._heard = 0.0
        self._news = asyncio.Event()
        self._pause = _FIRST_PAUSE_S
        self._missing_since: float | None = None
        self._begun = False
        self._closed: str | None = None
        self._subscription: Any = None
        self._off: Callable[[], None] = lambda: None
        self._time = asyncio.get_running_loop().time

    async def open(self) -> None:
        """Subscribes the inbox, and asks for the end where there is one. Errors as of `read`."""
        self._subscription = await self._link.listen(f"{self._inbox}.*", self._on_message)
        self._off = self._link.on_event(self._on_event)
        if not self._follow:
            info = await self._api.stream_info(self.stream)
            self._bound = int(info["state"]["last_seq"])

    async def close(self) -> None:
        """Ends it; the server removes the consumer by itself."""
        self._off()
        if self._subscription is not None:
            await self._link.unlisten(self._subscription)
            self._subscription = None

    async def batch(self) -> list[Stored]:
        """The next messages, at least one; none at the end. What comes meanwhile is fetched in the
        background.
        """
        while not self._buffer:
            if self._ended or (not self._follow and self._next > self._bound):
                return []
            if self._closed is not None:
                raise BusClosed(f"{self.stream}: {self._closed}")
            await self._fill()
        taken, self._buffer = self._buffer, []
        if not self._out and not self._ended:
            # What is taken is in the reader's hands now: the next request may go while it is worked on.
            await self._ask_ahead()
        return taken

    # -- asking

    async def _fill(self) -> None:
        self._news.clear()
        if not self._link.connected:
            await self._wait(_LONGEST_PAUSE_S)
            return
        try:
            if self._consumer is None:
                await self._make_consumer()
            if not self._out:
                await self._ask()
        except NotConnected:
            self._drop_consumer()
            return
        except StoreUnavailable as error:
            log.info("%s: cannot be read now: %s", self.stream, error)
            await self._rest()
            return
        self._heard = max(self._heard, self._time() - _BEAT_S)
        patience = 2.5 * _BEAT_S if self._follow else _ANSWER_S
        if not await self._wait(patience) and self._time() - self._heard >= patience:
            log.info("%s: consumer %s is silent, a new one is made", self.stream, self._consumer)
            self._drop_consumer()

    async def _ask_ahead(self) -> None:
        if self._consumer is None or not self._link.connected:
            return
        try:
            await self._ask()
        except BusError:
            self._drop_consumer()

    async def _ask(self) -> None:
        assert self._consumer is not None
        request: dict[str, Any] = {"batch": BATCH, "max_bytes": self._batch_bytes}
        if self._follow:
            request |= {"expires": int(_EXPIRES_S * 1e9), "idle_heartbeat": int(_BEAT_S * 1e9)}
        else:
            request["no_wait"] = True
        self._asked += 1
        self._got, self._out = 0, True
        self._heard = self._time()
        await self._link.send(
            self._api.next_subject(self.stream, self._consumer),
            json.dumps(request).encode(),
            f"{self._inbox}.{self._asked}",
        )

    async def _make_consumer(self) -> None:
        name = secrets.token_hex(16)
        try:
            await self._api.create_consumer(
                self.stream,
                {
                    "name": name,
                    "deliver_policy": "by_start_sequence",
                    "opt_start_seq": self._next,
                    "ack_policy": "none",
                    "filter_subject": self._filter,
                    "inactive_threshold": int(_IDLE_S * 1e9),
                    "mem_storage": True,
                    "num_replicas": 1,
                },
            )
        except NotFound:
            # A server that starts again may not have its streams at once; one that never had it is told at
            # once.
            now = self._time()
            self._missing_since = now if self._missing_since is None else self._missing_since
            if not self._begun or now - self._missing_since > _GONE_S:
                raise
            await self._rest()
            return
        self._begun, self._missing_since = True, None
        self._consumer, self._delivered, self._out = name, 0, False

    def _drop_consumer(self) -> None:
        self._consumer, self._out = None, False

    async def _rest(self) -> None:
        self._drop_consumer()
        pause, self._pause = self._pause, min(_LONGEST_PAUSE_S, self._pause * 2)
        await asyncio.sleep(pause)

    async def _wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    # -- what comes in

    def _on_message(self, msg: Msg) -> None:
        self._heard = self._time()
        where = place(msg.reply)
        if where is None:
            self._on_status(msg)
            return
        if where.consumer != self._consumer or self._ended:
            return
        if where.delivered != self._delivered + 1:
            log.info(
                "%s: deliveries were lost behind %d, a new consumer is made", self.stream, self._next - 1
            )
            self._drop_consumer()
            self._news.set()
            return
        self._delivered = where.delivered
        self._take(msg, where)

    def _take(self, msg: Msg, where: Place) -> None:
        if not self._follow and where.sequence > self._bound:
            self._ended = True
            self._news.set()
            return
        self._buffer.append(Stored(msg.subject, where.sequence, msg.data, msg.headers or {}))
        self._next = where.sequence + 1
        self._pause = _FIRST_PAUSE_S
        self._got += 1
        if self._got >= BATCH:
            self._out = False
        self._news.set()

    def _on_status(self, msg: Msg) -> None:
        code, text = status(msg)
        if code == 100 or msg.subject != f"{self._inbox}.{self._asked}":
            return
        self._out = False
        if code == 404 and not self._follow:
            self._ended = True
        elif code in (404, 408):
            pass
        elif code == 409 and "maxbytes" in text.lower().replace(" ", ""):
            if not self._got:  # one message alone is larger
                self._batch_bytes *= 2
        elif code == 409 and "batch completed" in text.lower():
            pass
        else:  # no such consumer, deleted, another leader, the server shuts down
            log.info("%s: consumer lost: %d %s", self.stream, code, text)
            self._drop_consumer()
        self._news.set()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Disconnected | Reconnected):
            self._drop_consumer()
        elif isinstance(event, Closed):
            self._closed = event.reason
        else:
            return
        self._news.set()
