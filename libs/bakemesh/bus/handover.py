"""Subscriptions whose messages are handed to a plain function as they are read from the socket.

The client library puts every message into a queue, from which a task of the subscription takes it and awaits
a coroutine: half of what receiving a small message costs. A plain function needs none of it. The library has
no way to say so, so the subscription gets something else in the place of its queue; what it does with its
queue is all here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

log = logging.getLogger(__name__)


class HandOver:
    """Stands in the place of a subscription's queue: what is put goes to `take` at once."""

    def __init__(self, subscription: Subscription, take: Callable[[Msg], None]) -> None:
        self._subscription = subscription
        self.take = take  # its exceptions go to `failed`: they would end the connection's reading

    def put_nowait(self, msg: Msg) -> None:
        """Hands a message over that came through the library's own hands."""
        self._subscription._pending_size -= len(msg.data)
        try:
            self.take(msg)
        except Exception:  # noqa: BLE001 - logged by `failed`
            self.failed(msg)

    def failed(self, msg: Msg) -> None:
        """Logs the exception that is being handled."""
        log.exception("handler of %s failed on %s", self._subscription.subject, msg.subject)

    async def get(self) -> Msg:
        """Never gives anything; the task that waits here is ended with its subscription."""
        never: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        return await never

    async def join(self) -> None:
        """Nothing is ever left to do."""

    def task_done(self) -> None:
        """Nothing is counted."""

    def qsize(self) -> int:
        """Nothing is ever kept."""
        return 0

    def empty(self) -> bool:
        """Nothing is ever kept."""
        return True


async def hand_over(
    client: Client, pattern: str, take: Callable[[Msg], None], queue: str = ""
) -> Subscription:
    """Subscribes `take`, a plain function, to `pattern`."""

    async def late(msg: Msg) -> None:
        take(msg)  # what was read before the queue was replaced

    made = await client.subscribe(pattern, queue=queue, cb=late)
    made._pending_queue = HandOver(made, take)  # type: ignore[assignment]
    return made
