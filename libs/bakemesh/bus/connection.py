"""The bus: five verbs over one connection, in typed messages.

publish, publish_stored, subscribe, request, serve. A `Bus` guarantees that what it sends is sealed with its
own `from`, that what it takes has passed `admit`, and that every failure is one of `errors`. While the link
is down, `publish` raises at once, `request` and `publish_stored` wait for it within their timeout;
subscriptions come back by themselves, and `Reconnected` tells that core messages may be missing. Left out:
streams and their readers and writers (`streams`, `writer`, `reader`, `inbox`), buckets (`kv`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from bakemesh.bus import storing
from bakemesh.bus.errors import BusError
from bakemesh.bus.events import Event
from bakemesh.bus.jsapi import HUB_DOMAIN, JsApi
from bakemesh.bus.link import Link
from bakemesh.bus.replies import Conversation, InboxReply, Presence, received
from bakemesh.bus.sealing import Sealed, payload_of, seal
from bakemesh.bus.settings import BusSettings
from bakemesh.bus.storing import StoredAck
from bakemesh.bus.verbs import Answerer, Handler, OnRefusal, Refusals, Serving, Subscription
from bakemesh.protocol.message import Message, Received


class Bus:
    """A connection to the mesh. Made by `connect`; an async context manager that closes it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.settings = link.settings
        self._sender = link.settings.sender
        self.api = JsApi(link)
        self._hub_api = JsApi(link, HUB_DOMAIN)
        self._refusals = Refusals()

    @classmethod
    async def connect(cls, settings: BusSettings) -> Self:
        """Connects. Raises BusUnreachable, AccessDenied, BadCredentials within
        `settings.connect_timeout_s`.
        """
        return cls(await Link.open(settings))

    async def close(self) -> None:
        """Drains and closes, within `settings.close_timeout_s`. Idempotent."""
        await self.link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- what it is

    @property
    def mesh(self) -> str:
        """The mesh's name, the first token of its subjects."""
        return self.settings.mesh

    @property
    def connected(self) -> bool:
        """Whether the link is up, as far as one can know."""
        return self.link.connected

    @property
    def max_payload(self) -> int:
        """The largest payload in bytes that the server takes."""
        return self.link.max_payload

    @property
    def auth_required(self) -> bool:
        """Whether the server wants credentials of everyone."""
        return self.link.auth_required

    @property
    def domain(self) -> str | None:
        """The server's JetStream domain: `hub`, a leaf's NodeID, or None."""
        return self.link.domain

    @property
    def on_leaf(self) -> bool:
        """Whether the server is a node's own, so that the hub's stores are in another domain."""
        return self.link.domain not in (None, HUB_DOMAIN)

    @property
    def hub_api(self) -> JsApi:
        """The JetStream of the hub: the server's own, or from a leaf by its domain."""
        return self._hub_api if self.on_leaf else self.api

    @property
    def refused(self) -> Counter[str]:
        """How many messages were refused, by reason."""
        return self._refusals.counts

    def on_event(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Calls back, in the loop, on Disconnected, Reconnected, SlowConsumer, Denied, Closed.

        Returns what takes the callback out again.
        """
        return self.link.on_event(callback)

    async def wait_connected(self, timeout: float) -> None:
        """Returns when the link is up. Raises NotConnected where it is not in time."""
        await self.link.wait_connected(timeout)

    # -- the verbs

    def seal(self, message: Message, type: str | None = None) -> Sealed:  # noqa: A002
        """The message in its envelope, with a new id. Raises MessageError where an entry cannot be
        written.
        """
        return seal(message, self.settings.sender, type=type)

    async def publish(self, subject: str, message: Message) -> None:
        """Publishes at most once. Raises NotConnected, MessageTooLarge, BusClosed; a denial is an
        event only.
        """
        await self.link.send(subject, payload_of(message, self._sender))

    async def publish_stored(
        self,
        subject: str,
        sealed: Sealed,
        reply: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> StoredAck:
        """Publishes and waits until a stream has it; `reply` goes out as `Bakemesh-Reply`. Errors:
        `storing`.
        """
        seconds = self.settings.request_timeout_s if timeout is None else timeout
        return await storing.publish_stored(
            self.link, subject, sealed, reply=reply, headers=headers, timeout=seconds
        )

    async def subscribe(
        self, pattern: str, handler: Handler, *, queue: str = "", refused: OnRefusal | None = None
    ) -> Subscription:
        """Calls `handler` with each Delivery. The server has the subscription when this returns.

        `refused` hears of messages that were not taken. Raises AccessDenied, NotConnected, BusClosed.
        """
        made = Subscription(self.link, pattern, handler, self._refusals, refused)
        await made.start(queue)
        return made

    async def request(self, subject: str, message: Message, timeout: float | None = None) -> Received:
        """Asks and gives the typed answer.

        Raises NoResponder, RequestTimeout, ServiceFailed, ReplyRefused, AccessDenied, NotConnected,
        MessageTooLarge.
        """
        seconds = self.settings.request_timeout_s if timeout is None else timeout
        answer = await self.link.ask(subject, seal(message, self.settings.sender).payload, seconds)
        return received(subject, answer)

    def conversation(
        self,
        subject: str,
        message: Message,
        take: Callable[[Received], None],
        failed: Callable[[BusError], None],
    ) -> Conversation:
        """A request with many answers, not sent yet: see Conversation. Raises MessageError where an entry
        cannot be written.
        """
        return Conversation(self.link, subject, seal(message, self._sender), take, failed)

    def presence(self, subject: str, gone: Callable[[], None]) -> Presence:
        """Whether anybody still listens at `subject`: see Presence."""
        return Presence(self.link, subject, gone)

    async def serve(
        self,
        pattern: str,
        handler: Answerer,
        *,
        queue: str = "",
        refused: OnRefusal | None = None,
        concurrency: int = 64,
    ) -> Serving:
        """Answers requests with the Message that `handler` gives; None: no answer from here.

        A handler's exception is answered as a service error (ServiceFailed at the asker). `refused` may give
        the answer to a message that was not taken. Raises AccessDenied, NotConnected, BusClosed.
        """
        made = Serving(self.link, pattern, handler, self._refusals, refused, concurrency)
        await made.start(queue)
        return made

    def inbox_reply(self) -> InboxReply:
        """A place for one typed answer to a stored message: its `subject` is the `reply` of
        `publish_stored`.
        """
        return InboxReply(self.link)
