"""One connection to a NATS server, with the client library's traps closed.

Guarantees: `open` ends in bounded time with a typed error; a lost link is made again for ever, with jitter; a
link that died without a word is noticed within about six seconds; nothing is sent while the link is down
(`NotConnected`: no request is carried out minutes later); a refused publish fails what waits for its answer;
`listen` returns when the server has the subscription; a connection closed by the server is an event and fails
what waits. Left out: messages and envelopes (`connection`), JetStream (`jsapi`, `storing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from bakemesh.bus import dialing, framing
from bakemesh.bus.answers import Answers, Awaited, Expected
from bakemesh.bus.errors import (
    AccessDenied,
    BusClosed,
    BusError,
    MessageTooLarge,
    NoResponder,
    NotConnected,
    RequestTimeout,
)
from bakemesh.bus.events import Closed, Denied, Disconnected, Event, Reconnected, SlowConsumer
from bakemesh.bus.handover import hand_over
from bakemesh.bus.parsing import FrameParser
from bakemesh.bus.settings import BusSettings
from bakemesh.bus.transport import WideTransport

log = logging.getLogger(__name__)

OnMsg = Callable[[Msg], Awaitable[None] | None]

REVIVE_S = 1.0
_MOMENT_S = 0.01
_PONG_LOOK_S = 0.25
_DENIED = re.compile(r'permissions violation for (publish|subscription)[^"]*"([^"]+)"', re.IGNORECASE)
_STATUS = "Status"
_CONNECTED = Client.CONNECTED


class Link:
    """A connection. Made by `open`, ended by `close`."""

    def __init__(self, settings: BusSettings) -> None:
        self.settings = settings
        self._client = Client()
        self._client._ps = FrameParser(self._client)
        if all(server.startswith(("nats:", "tls:")) or "://" not in server for server in settings.servers):
            self._client._transport = WideTransport()  # else it is the library's for WebSockets
        self._answers = Answers(f"_INBOX.{settings.party}.{secrets.token_hex(12)}")
        self._callbacks: list[Callable[[Event], None]] = []
        self._denied_subscriptions: set[str] = set()
        self._dropped: dict[str, int] = {}
        self._reasons: list[str] = []
        self._refused: asyncio.Future[str] | None = None
        self._up = asyncio.Event()
        self._opened = False
        self._closing = False
        self._gone: str | None = None
        self._reviver: asyncio.Task[None] | None = None

    # -- making and ending it

    @classmethod
    async def open(cls, settings: BusSettings) -> Link:
        """Connects. Raises BusUnreachable, AccessDenied or BadCredentials within `connect_timeout_s`."""
        link = cls(settings)
        link._refused = asyncio.get_running_loop().create_future()
        callbacks: dict[str, Any] = {
            "error_cb": link._on_error,
            "disconnected_cb": link._on_disconnected,
            "reconnected_cb": link._on_reconnected,
            "closed_cb": link._on_closed,
        }
        attempt = asyncio.create_task(link._client.connect(**dialing.options(settings), **callbacks))
        try:
            raced: set[asyncio.Future[Any]] = {attempt, link._refused}
            await asyncio.wait(raced, timeout=settings.connect_timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not attempt.done() or attempt.exception() is not None:
                error = attempt.exception() if attempt.done() else None
                refusal = link._refused.result() if link._refused.done() else None
                raise dialing.why_not(settings, error, refusal, link._reasons)
            link._opened = True
            link._up.set()
            await link.listen(f"{link.inbox}.*", link._answers.take)
        except BaseException:
            await link._abandon(attempt)
            raise
        link._reviver = asyncio.create_task(link._revive())
        return link

    async def _abandon(self, attempt: asyncio.Task[None]) -> None:
        self._closing = True
        while not attempt.done():
            # Once may not do: uvloop turns a cancelled connection into an OSError, and the library goes on.
            attempt.cancel()
            await asyncio.wait({attempt}, timeout=_MOMENT_S)
        if not attempt.cancelled():
            attempt.exception()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await self._client.close()

    async def close(self) -> None:
        """Lets handlers finish what has arrived, sends what is pending, and closes; all within
        `close_timeout_s`.
        """
        if self._closing:
            return
        self._closing = True
        if self._reviver:
            self._reviver.cancel()
        limit = self.settings.close_timeout_s
        if await self._reaches(limit / 2):
            # A task of its own: when its time is up, the library's drain cancels whoever awaits it.
            draining = asyncio.create_task(self._client.drain())
            await asyncio.wait({draining}, timeout=limit)
            if not draining.done():
                draining.cancel()
            await asyncio.wait({draining}, timeout=1)
            if draining.done() and not draining.cancelled() and (error := draining.exception()):
                log.debug("drain: %s", error)
        if not self._client.is_closed:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(limit):
                    await self._client.close()
        self._end("closed")

    async def _reaches(self, seconds: float) -> bool:
        """Whether the server answers. Where it does not, there is nothing to drain, and the library's drain
        would leave futures behind.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._ping()
        except (nats.errors.Error, TimeoutError, OSError, RuntimeError, BusClosed):
            return False
        return True

    # -- what it is

    @property
    def connected(self) -> bool:
        """Whether the link is up, as far as one can know."""
        return self._up.is_set() and self._client.is_connected

    @property
    def max_payload(self) -> int:
        """The largest payload in bytes that the server takes."""
        return int(self._client._max_payload)

    @property
    def auth_required(self) -> bool:
        """Whether the server wants credentials of everyone."""
        return bool(self._client._server_info.get("auth_required", False))

    @property
    def domain(self) -> str | None:
        """The JetStream domain of the server, None where it has none. The server says so as it greets."""
        return self._client._server_info.get("domain") or None

    @property
    def jetstream(self) -> bool:
        """Whether the server has JetStream."""
        return bool(self._client._server_info.get("jetstream", False))

    @property
    def url(self) -> str:
        """The server's address, without user and password."""
        found = self._client.connected_url
        return f"{found.scheme}://{found.hostname}:{found.port}" if found else self.settings.servers[0]

    @property
    def inbox(self) -> str:
        """The private prefix of this connection's answers."""
        return self._answers.prefix

    def on_event(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Calls back on every event, in the loop. Returns what takes the callback out again."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    async def wait_connected(self, timeout: float) -> None:
        """Returns when the link is up. Raises NotConnected when it is not in time, BusClosed when it never
        will be.
        """
        self._check_open()
        try:
            async with asyncio.timeout(timeout):
                while not self.connected:
                    # The client knows of a loss a moment before it says so.
                    await (asyncio.sleep(_MOMENT_S) if self._up.is_set() else self._up.wait())
                    self._check_open()
        except TimeoutError:
            raise NotConnected(f"no link to {', '.join(self.settings.servers)} for {timeout:g} s") from None

    def _check_open(self) -> None:
        if self._gone is not None:
            raise BusClosed(f"the connection is closed: {self._gone}")

    # -- sending, asking, listening

    async def send(
        self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Hands one message to the server. Raises NotConnected, BusClosed, MessageTooLarge."""
        client = self._client
        if headers is None and client._status == _CONNECTED and self._gone is None:  # and not draining
            begin = framing.opening(subject)
            if begin is not None and (not reply or framing.is_token(reply)):
                size = len(payload)
                if size > client._max_payload:
                    raise MessageTooLarge(subject, size, client._max_payload)
                if framing.push(client, framing.plain(begin, reply, payload), size):
                    await framing.settle(client, turn=True)
                return
        if not client.is_connected or self._gone is not None:
            self._check_open()
            raise NotConnected(f"{subject}: not sent, the link to {', '.join(self.settings.servers)} is down")
        try:
            await client.publish(subject, payload, reply, None if headers is None else dict(headers))
        except nats.errors.MaxPayloadError:
            raise MessageTooLarge(subject, len(payload), self.max_payload) from None
        except (nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError):
            raise BusClosed(f"{subject}: not sent, the connection is closed") from None
        except nats.errors.OutboundBufferLimitError:
            raise NotConnected(f"{subject}: not sent, the link is down") from None

    def post(self, subject: str, payload: bytes, reply: str = "") -> None:
        """As `send`, from a plain function, where nothing can be awaited: it does not wait where much is
        pending. Raises NotConnected, BusClosed, MessageTooLarge.
        """
        client = self._client
        begin = framing.opening(subject)
        if begin is None or (reply and not framing.is_token(reply)):
            raise ValueError(f"{subject[:80]!r} (reply {reply[:80]!r}) is no subject to publish to")
        if client._status != _CONNECTED or self._gone is not None:  # or draining
            self._check_open()
            raise NotConnected(f"{subject}: not sent, the link to {', '.join(self.settings.servers)} is down")
        size = len(payload)
        if size > client._max_payload:
            raise MessageTooLarge(subject, size, client._max_payload)
        if framing.push(client, framing.plain(begin, reply, payload), size):
            framing.kick(client)

    @property
    def crowded(self) -> bool:
        """Whether so much is pending that who has more to say should `settle` first."""
        return bool(self._client._pending_data_size > self._client._max_pending_size > 0)

    async def settle(self) -> None:
        """Waits until what is pending is on its way, where it is much."""
        await framing.settle(self._client)

    def expect(self, target: str) -> Expected:
        """An inbox for one answer to what goes to `target`; a denial of `target` fails it with
        AccessDenied.
        """
        return self._answers.expect(target)

    def expect_many(
        self, target: str, take: Callable[[Msg], None], failed: Callable[[BusError], None]
    ) -> Awaited:
        """An inbox for every answer to what goes to `target`: `take` gets each as it is read; `failed` hears
        of a denial of `target`, and of the end of the connection.
        """
        return self._answers.expect_many(target, take, failed)

    def forget(self, expected: Expected | Awaited) -> None:
        """Ends an expectation, whether or not it was met."""
        self._answers.forget(expected)

    async def exchange(
        self, subject: str, payload: bytes, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Msg:
        """One message out, the first answer back, whatever it is. A link that is down is waited for.

        Raises RequestTimeout after `timeout` seconds, or NotConnected where it was not sent by then;
        AccessDenied, MessageTooLarge, BusClosed.
        """
        expected = self.expect(subject)
        sent = False
        try:
            async with asyncio.timeout(timeout):
                if not self.connected:
                    await self.wait_connected(timeout)
                await self.send(subject, payload, expected.reply, headers)
                sent = True
                return await expected.future
        except TimeoutError:
            if sent:
                raise RequestTimeout(subject, timeout) from None
            raise NotConnected(f"{subject}: not sent, no link for {timeout:g} s") from None
        finally:
            self.forget(expected)

    async def ask(
        self, subject: str, payload: bytes, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Msg:
        """As `exchange`, for requests. Raises NoResponder too."""
        answer = await self.exchange(subject, payload, timeout, headers)
        if is_no_responders(answer):
            raise NoResponder(subject)
        return answer

    async def listen(self, pattern: str, callback: OnMsg, queue: str = "") -> Subscription:
        """Subscribes; when it returns, the server has the subscription.

        A coroutine function is awaited for one message after the other, fed by a queue. A plain function is
        called as each message is read, without a queue and a task in between; it must be short. Raises
        AccessDenied, NotConnected, BusClosed.
        """
        await self.wait_connected(self.settings.request_timeout_s)
        self._denied_subscriptions.discard(pattern.lower())
        try:
            if inspect.iscoroutinefunction(callback):
                made = await self._client.subscribe(pattern, queue=queue, cb=callback)
            else:
                made = await hand_over(self._client, pattern, cast(Callable[[Msg], None], callback), queue)
            await self.barrier()
        except nats.errors.ConnectionClosedError:
            raise BusClosed(f"{pattern}: not subscribed, the connection is closed") from None
        if pattern.lower() in self._denied_subscriptions:
            await self.unlisten(made)
            raise AccessDenied("subscribe", pattern, who=self.settings.party)
        return made

    async def unlisten(self, subscription: Subscription, *, drain: bool = False) -> None:
        """Ends a subscription; with `drain` what has arrived is handled first. Never raises for a
        dead link.
        """
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            if drain and self.connected:
                await subscription.drain()  # type: ignore[no-untyped-call]
            else:
                await subscription.unsubscribe()

    async def barrier(self) -> None:
        """Returns when the server has processed all that was sent before. Raises NotConnected when it cannot
        tell.

        Twice, since the library's PING overtakes what is pending: the second one cannot.
        """
        try:
            for _ in range(2):
                await self._ping()
        except (nats.errors.Error, TimeoutError, OSError, RuntimeError):
            # The link went down in between. Subscriptions come back with it; then nothing of ours is pending.
            await self.wait_connected(self.settings.request_timeout_s)

    async def _ping(self) -> None:
        """One PING and its PONG. Raises TimeoutError where none comes, or none can any more.

        Not the library's flush: one that is cancelled, or whose time is up, leaves a cancelled future behind,
        and the PONG that comes for it ends the library's read loop, and with it the connection.
        """
        client = self._client
        self._check_open()
        if not client.is_connected:
            raise TimeoutError
        pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        await client._send_ping(pong)
        deadline = asyncio.get_running_loop().time() + self.settings.request_timeout_s
        while not pong.done():
            # After a reconnect the library has forgotten it.
            if asyncio.get_running_loop().time() > deadline or pong not in client._pongs:
                raise TimeoutError
            await asyncio.wait({pong}, timeout=_PONG_LOOK_S)

    # -- what the library calls

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            pattern = error.sub.subject if error.sub else error.subject
            self._dropped[pattern] = dropped = self._dropped.get(pattern, 0) + 1
            if dropped & (dropped - 1) == 0:  # 1, 2, 4, 8 …: told early, not told a million times
                log.warning("slow consumer on %s: %d messages dropped", pattern, dropped)
                self._tell(SlowConsumer(pattern, dropped))
            return
        text = str(error)
        if found := _DENIED.search(text):
            operation = "publish" if found.group(1).lower() == "publish" else "subscribe"
            self._on_denied(operation, found.group(2).lower())
            return
        if not isinstance(error, nats.errors.Error | OSError | TimeoutError):
            log.error("a callback of the link failed", exc_info=error)
            return
        if self._opened and dialing.is_refusal(error) and text not in self._reasons:
            log.warning("bus link: the server refuses %s now: %s", self.settings.party, text)
        self._note(error)
        if self._refused is not None and not self._refused.done() and dialing.is_refusal(error):
            self._refused.set_result(text)  # whoever opens the link need not wait any longer

    def _on_denied(self, operation: str, subject: str) -> None:
        if operation == "subscribe":
            self._denied_subscriptions.add(subject)
        else:
            self._answers.deny(subject, self.settings.party)
        log.warning("%s may not %s %s", self.settings.party, operation, subject)
        self._tell(Denied(operation, subject))

    def _note(self, error: BaseException) -> None:
        text = str(error) or type(error).__name__
        if text not in self._reasons:
            log.debug("link: %s", text)
            self._reasons = [*self._reasons[-7:], text]

    async def _on_disconnected(self) -> None:
        if not self._opened or self._closing or not self._up.is_set():
            return
        self._up.clear()
        reason = self._reasons[-1] if self._reasons else "connection lost"
        log.warning("bus link down: %s", reason)
        self._tell(Disconnected(reason))

    async def _on_reconnected(self) -> None:
        self._reasons = []
        self._up.set()
        log.info("bus link up again at %s", self.url)
        self._tell(Reconnected(self.url))

    async def _on_closed(self) -> None:
        if self._closing or not self._opened:
            return
        reason = str(self._client.last_error or "by the server")
        log.error("bus connection closed for good: %s", reason)
        self._end(reason)
        self._tell(Closed(reason))

    def _end(self, reason: str) -> None:
        self._gone = self._gone or reason
        self._up.set()  # whoever waits for the link learns that it is gone
        self._answers.end(reason)

    def _tell(self, event: Event) -> None:
        for callback in list(self._callbacks):
            try:
                callback(event)
            except Exception:
                log.exception("a callback failed on %s", event)

    async def _revive(self) -> None:
        """Starts reconnecting again where the library's own task died of an error that it does not expect."""
        while True:
            await asyncio.sleep(REVIVE_S)
            client = self._client
            task = client._reconnection_task
            if client.is_reconnecting and task is not None and task.done():
                if not task.cancelled() and (error := task.exception()):
                    log.warning("reconnecting failed with %r; once more", error)
                client._reconnection_task = asyncio.create_task(client._attempt_reconnect())


def is_no_responders(msg: Msg) -> bool:
    """Whether this is the server's own answer that nobody listens."""
    return not msg.data and bool(msg.headers) and (msg.headers or {}).get(_STATUS) == "503"
