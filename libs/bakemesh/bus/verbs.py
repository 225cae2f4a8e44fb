"""What comes in: subscriptions and services over a link.

Every message passes `admit` before a handler sees it: its own subject must parse, its Type must be the
envelope's, and a reply must be somebody's inbox, so that nobody can have this process publish where he may
not. What is refused is counted by reason and logged once a sender.

A plain handler is called in the library's callback, without a task; a coroutine is awaited there, one message
after the other in the order of arrival. A service with a coroutine handler runs up to `concurrency` at once,
begun in the order of arrival. A handler's exception is logged, counted, and (service) answered; it never ends
a subscription.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Raw

from bakemesh.bus.errors import BusError
from bakemesh.bus.link import Link
from bakemesh.bus.sealing import seal
from bakemesh.protocol.admit import Delivery, Refusal, admit
from bakemesh.protocol.message import Message

log = logging.getLogger(__name__)

Handler = Callable[[Delivery], Awaitable[None] | None]
Answerer = Callable[[Delivery], Awaitable[Message | None] | Message | None]
OnRefusal = Callable[[Refusal], Message | None]

ERROR_CODE = "Nats-Service-Error-Code"
ERROR_TEXT = "Nats-Service-Error"
MALFORMED = "malformed_message"
_SENDERS_REMEMBERED = 1024


def is_coroutine(handler: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object may be called like a coroutine function
    )


class Refusals:
    """Counts refused messages by reason, and logs each (sender, reason) once."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged: set[tuple[str, str]] = set()

    def note(self, refusal: Refusal) -> None:
        """Takes one refused message into account."""
        self.counts[refusal.reason] += 1
        seen = (refusal.sender, refusal.reason)
        if seen not in self._logged and len(self._logged) < _SENDERS_REMEMBERED:
            self._logged.add(seen)
            log.warning(
                "message refused: %s from %s on %s: %s",
                refusal.reason,
                refusal.sender,
                refusal.subject,
                refusal.detail,
            )


class Subscription:
    """A running subscription; `stop` ends it."""

    def __init__(
        self, link: Link, pattern: str, handler: Handler, refusals: Refusals, refused: OnRefusal | None
    ) -> None:
        self.pattern = pattern
        self.errors = 0
        self._link, self._handler, self._refusals, self._refused = link, handler, refusals, refused
        self._raw: Raw | None = None

    async def start(self, queue: str = "") -> None:
        """Subscribes; the server has it when this returns."""
        take = self._take_await if is_coroutine(self._handler) else self._take
        self._raw = await self._link.listen(self.pattern, take, queue)

    async def stop(self) -> None:
        """Ends it; messages that have arrived are still handled. Idempotent."""
        raw, self._raw = self._raw, None
        if raw is not None:
            await self._link.unlisten(raw, drain=True)

    def _take(self, msg: Msg) -> None:
        outcome = admit(msg.subject, msg.reply or None, msg.headers, msg.data)
        if isinstance(outcome, Refusal):
            self._refuse(outcome)
            return
        try:
            result = self._handler(outcome)
        except Exception:  # noqa: BLE001 - whatever a handler does, the subscription lives
            self._failed(msg)
            return
        if result is not None and inspect.isawaitable(result):
            raise TypeError(f"the handler of {self.pattern} gave {result!r}; make it a coroutine function")

    async def _take_await(self, msg: Msg) -> None:
        outcome = admit(msg.subject, msg.reply or None, msg.headers, msg.data)
        if isinstance(outcome, Refusal):
            self._refuse(outcome)
            return
        try:
            await cast(Awaitable[None], self._handler(outcome))
        except Exception:  # noqa: BLE001 - whatever a handler does, the subscription lives
            self._failed(msg)

    def _refuse(self, refusal: Refusal) -> None:
        self._refusals.note(refusal)
        if self._refused is not None:
            self._refused(refusal)

    def _failed(self, msg: Msg) -> None:
        self.errors += 1
        log.exception("handler of %s failed on %s", self.pattern, msg.subject)


class Serving:
    """A running service endpoint; `stop` ends it. Its counts are what `$SRV.STATS` shows."""

    def __init__(
        self,
        link: Link,
        pattern: str,
        handler: Answerer,
        refusals: Refusals,
        refused: OnRefusal | None,
        concurrency: int,
    ) -> None:
        self.pattern = pattern
        self.queue = ""
        self.requests = 0
        self.errors = 0
        self.busy_ns = 0
        self.last_error = ""
        self._link, self._handler, self._refusals, self._refused = link, handler, refusals, refused
        self._slots = asyncio.Semaphore(concurrency)
        self._running: set[asyncio.Task[None]] = set()
        self._raw: Raw | None = None

    async def start(self, queue: str = "") -> None:
        """Subscribes; the server has it when this returns."""
        self.queue = queue
        self._raw = await self._link.listen(self.pattern, self._take, queue)

    async def stop(self) -> None:
        """Takes no more; what has begun is answered first, within the link's close time. Idempotent."""
        raw, self._raw = self._raw, None
        if raw is not None:
            await self._link.unlisten(raw, drain=True)
        if self._running:
            _, late = await asyncio.wait(set(self._running), timeout=self._link.settings.close_timeout_s)
            for task in late:
                task.cancel()

    async def _take(self, msg: Msg) -> None:
        outcome = admit(msg.subject, msg.reply or None, msg.headers, msg.data)
        if isinstance(outcome, Refusal):
            await self._refuse(outcome)
            return
        self.requests += 1
        started = time.perf_counter_ns()
        try:
            result = self._handler(outcome)
        except Exception as error:  # noqa: BLE001 - answered below
            await self._fail(outcome, error)
            return
        finally:
            self.busy_ns += time.perf_counter_ns() - started
        if inspect.isawaitable(result):
            await self._slots.acquire()
            task = asyncio.ensure_future(self._finish(outcome, result))
            self._running.add(task)
            task.add_done_callback(self._done)
        else:
            await self._answer(outcome, result)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._slots.release()

    async def _finish(self, delivery: Delivery, result: Awaitable[Message | None]) -> None:
        started = time.perf_counter_ns()
        try:
            answer = await result
        except Exception as error:  # noqa: BLE001 - answered
            await self._fail(delivery, error)
            return
        finally:
            self.busy_ns += time.perf_counter_ns() - started
        await self._answer(delivery, answer)

    async def _answer(self, delivery: Delivery, answer: Message | None) -> None:
        if answer is None or delivery.reply is None:
            return
        try:
            sealed = seal(answer, self._link.settings.sender)
            await self._link.send(delivery.reply, sealed.payload)
        except BusError as error:
            self._count(error)
            log.warning("answer to %s not sent: %s", delivery.subject, error)
        except Exception as error:  # noqa: BLE001 - an answer that cannot be written is the handler's failure
            await self._fail(delivery, error)

    async def _fail(self, delivery: Delivery, error: Exception) -> None:
        self._count(error)
        log.error("service %s failed on %s", self.pattern, delivery.subject, exc_info=error)
        # The text stays in the log: it may hold what the asker is not to see.
        await self._send_error(
            delivery.reply, "500", f"the service failed ({type(error).__name__}); its log says more"
        )

    async def _refuse(self, refusal: Refusal) -> None:
        self._refusals.note(refusal)
        answer = self._refused(refusal) if self._refused is not None else None
        if refusal.reply is None:
            return
        if answer is None:
            await self._send_error(refusal.reply, MALFORMED, refusal.detail)
            return
        try:
            await self._link.send(refusal.reply, seal(answer, self._link.settings.sender).payload)
        except BusError as error:
            log.warning("answer to %s not sent: %s", refusal.subject, error)

    async def _send_error(self, reply: str | None, code: str, text: str) -> None:
        if reply is None:
            return
        try:
            await self._link.send(reply, b"", headers={ERROR_CODE: code, ERROR_TEXT: text})
        except BusError as error:
            log.warning("error answer not sent: %s", error)

    def _count(self, error: Exception) -> None:
        self.errors += 1
        self.last_error = f"{type(error).__name__}: {error}"[:200]


def service_error(msg: Msg) -> tuple[str, str] | None:
    """Code and text of an error answer, None for any other."""
    headers: dict[str, Any] = msg.headers or {}
    code = headers.get(ERROR_CODE)
    return (str(code), str(headers.get(ERROR_TEXT, ""))) if code is not None else None
