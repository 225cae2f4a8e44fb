"""Typed answers: of a request, and of a stored message in an inbox of its own."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from nats.aio.msg import Msg

from bakemesh.bus.errors import ReplyRefused, RequestTimeout, ServiceFailed
from bakemesh.bus.link import Link
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
