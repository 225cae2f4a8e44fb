"""Answers that are waited for: one private subject each below a prefix, so that one subscription takes them
all.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from nats.aio.msg import Msg

from bakemesh.bus.errors import AccessDenied, BusClosed, BusError


class Expected:
    """One answer: put `reply` into the message, await `future`, forget it at the end."""

    __slots__ = ("future", "reply", "target", "token")

    def __init__(self, target: str, token: str, reply: str, future: asyncio.Future[Msg]) -> None:
        self.target, self.token, self.reply, self.future = target, token, reply, future


class Awaited:
    """Many answers: put `reply` into the message; `take` is called with each until it is forgotten, `failed`
    once where no more can come.
    """

    __slots__ = ("failed", "reply", "take", "target", "token")

    def __init__(
        self,
        target: str,
        token: str,
        reply: str,
        take: Callable[[Msg], None],
        failed: Callable[[BusError], None],
    ) -> None:
        self.target, self.token, self.reply, self.take, self.failed = target, token, reply, take, failed


class Answers:
    """The expectations of one connection, whose answers come to `<prefix>.*`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._waiting: dict[str, Expected | Awaited] = {}
        self._tokens = itertools.count()

    def expect(self, target: str) -> Expected:
        """An inbox for one answer to what goes to `target`."""
        token = f"{next(self._tokens):x}"
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        made = Expected(target, token, f"{self.prefix}.{token}", future)
        self._waiting[token] = made
        return made

    def expect_many(
        self, target: str, take: Callable[[Msg], None], failed: Callable[[BusError], None]
    ) -> Awaited:
        """An inbox for every answer to what goes to `target`."""
        token = f"{next(self._tokens):x}"
        self._waiting[token] = made = Awaited(target, token, f"{self.prefix}.{token}", take, failed)
        return made

    def forget(self, expected: Expected | Awaited) -> None:
        """Ends an expectation, whether or not it was met."""
        self._waiting.pop(expected.token, None)
        if type(expected) is Expected and not expected.future.done():
            expected.future.cancel()

    def take(self, msg: Msg) -> None:
        """Gives an answer to who expects it; one that nobody expects is dropped."""
        token = msg.subject[len(self.prefix) + 1 :]
        expected = self._waiting.get(token)
        if type(expected) is Awaited:
            expected.take(msg)
        elif type(expected) is Expected:
            del self._waiting[token]
            if not expected.future.done():
                expected.future.set_result(msg)

    def deny(self, subject: str, who: str) -> None:
        """Fails what waits for an answer to a refused publish. The server names the subject in lower case."""
        for expected in [one for one in self._waiting.values() if one.target.lower() == subject]:
            self._fail(expected, AccessDenied("publish", expected.target, who=who))

    def end(self, reason: str) -> None:
        """Fails all that waits: the connection is closed."""
        for expected in list(self._waiting.values()):
            self._fail(expected, BusClosed(f"{expected.target}: the connection is closed: {reason}"))

    def _fail(self, expected: Expected | Awaited, error: BusError) -> None:
        self._waiting.pop(expected.token, None)
        if type(expected) is Awaited:
            expected.failed(error)
        elif type(expected) is Expected and not expected.future.done():
            expected.future.set_exception(error)
            expected.future.exception()  # taken: maybe nobody awaits it any more
