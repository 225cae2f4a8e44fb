"""Typed answers: of a request, of a stored message in an inbox of its own, and of a request with many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from nats.aio.msg import Msg

from bakemesh.bus.errors import BusError, NoResponder, ReplyRefused, RequestTimeout, ServiceFailed
from bakemesh.bus.link import Link, is_no_responders
from bakemesh.bus.sealing import Sealed
from bakemesh.bus.verbs import service_error
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.message import Received, decode


def received(subject: str, answer: Msg) -> Received:
    """The message in an answer. Raises ServiceFailed for an error answer, ReplyRefused for bytes that are
    none.
    """
    if found := service_error(answer):
        raise ServiceFailed(subject, *found)
    try:
        return decode(answer.data)
    except MessageError as error:
        raise ReplyRefused(subject, str(error)) from error


class InboxReply:
    """Waits for one answer at `subject`. A context manager, or end it by `close`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._expected = link.expect("")
        self.subject = self._expected.reply

    async def received(self, timeout: float) -> Received:
        """The answer. Raises RequestTimeout, ServiceFailed, ReplyRefused, BusClosed. May be called again
        after a timeout.
        """
        try:
            async with asyncio.timeout(timeout):
                answer = await asyncio.shield(self._expected.future)
        except TimeoutError:
            raise RequestTimeout(self.subject, timeout) from None
        return received(self.subject, answer)

    def close(self) -> None:
        """Waits no more."""
        self._link.forget(self._expected)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Conversation:
    """A request with many answers: `take` is called with each as it is read, until `close`.

    `failed` is told NoResponder, ServiceFailed, ReplyRefused, AccessDenied or BusClosed. Both are plain,
    short functions, called in the loop, maybe before `send` returns. Left out: which answer is the last one,
    and how long to wait for it.
    """

    __slots__ = ("_awaited", "_failed", "_link", "_payload", "_take", "id")

    def __init__(
        self,
        link: Link,
        subject: str,
        sealed: Sealed,
        take: Callable[[Received], None],
        failed: Callable[[BusError], None],
    ) -> None:
        self.id = bytes.fromhex(sealed.msg_id)  # of the request's envelope
        self._link, self._payload, self._take, self._failed = link, sealed.payload, take, failed
        self._awaited = link.expect_many(subject, self._arrived, failed)

    async def send(self, headers: Mapping[str, str] | None = None) -> None:
        """Sends the request, once. Raises NotConnected, MessageTooLarge, BusClosed."""
        awaited = self._awaited
        await self._link.send(awaited.target, self._payload, awaited.reply, headers)

    def close(self) -> None:
        """Takes no more; what still comes is dropped. Idempotent."""
        self._link.forget(self._awaited)

    def _arrived(self, answer: Msg) -> None:
        if is_no_responders(answer):
            self._failed(NoResponder(self._awaited.target))
            return
        try:
            found = received(self._awaited.target, answer)
        except BusError as error:
            self._failed(error)
            return
        self._take(found)


class Presence:
    """Whether anybody listens at `subject`: a message that goes there with `reply` as its reply has `gone`
    called where the server says that nobody does. Until `close`.
    """

    __slots__ = ("_awaited", "_gone", "_link", "reply")

    def __init__(self, link: Link, subject: str, gone: Callable[[], None]) -> None:
        self._link, self._gone = link, gone
        self._awaited = link.expect_many(subject, self._arrived, self._failed)
        self.reply = self._awaited.reply

    def close(self) -> None:
        """Wants to know no more. Idempotent."""
        self._link.forget(self._awaited)

    def _arrived(self, answer: Msg) -> None:
        if is_no_responders(answer):
            self._gone()

    def _failed(self, _: BusError) -> None:
        self._gone()
