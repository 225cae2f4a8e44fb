"""A message on its way into a stream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be stored: its subject, its Nats-Msg-Id (used once only), its bytes."""

    subject: str
    msg_id: str
    payload: bytes


class Row:
    """An Outgoing in a writer's window, with the future of its stream sequence."""

    __slots__ = ("done", "msg_id", "out", "size")

    def __init__(self, out: Outgoing, done: asyncio.Future[int]) -> None:
        self.out, self.done = out, done
        self.msg_id, self.size = out.msg_id, len(out.payload)
