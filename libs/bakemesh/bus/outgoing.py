"""A message on its way into a stream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bakemesh.bus.framing import is_token


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be stored: its subject, its Nats-Msg-Id (used once only), its bytes.

    Raises ValueError for a subject or an id that cannot travel.
    """

    subject: str
    msg_id: str
    payload: bytes

    def __post_init__(self) -> None:
        for what, value in (("subject", self.subject), ("message id", self.msg_id)):
            if not is_token(value):
                raise ValueError(
                    f"{what} {value[:80]!r}: must not be empty or hold blanks or control characters"
                )


class Row:
    """An Outgoing in a writer's window, with the future of its stream sequence."""

    __slots__ = ("done", "msg_id", "out", "size")

    def __init__(self, out: Outgoing, done: asyncio.Future[int]) -> None:
        self.out, self.done = out, done
        self.msg_id, self.size = out.msg_id, len(out.payload)
