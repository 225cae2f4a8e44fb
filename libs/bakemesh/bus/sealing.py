"""Puts a message into its envelope: the one place that draws ids and reads the clock for it."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from bakemesh.protocol.envelope import ID_BYTES
from bakemesh.protocol.message import Message, encode

_DRAWN_AT_ONCE = 256


class Sealed(NamedTuple):
    """A message as it travels: its payload, and the `Nats-Msg-Id` that goes with it (the envelope's id in
    hex).
    """

    payload: bytes
    msg_id: str


class _Ids:
    """Random ids, drawn from the system many at a time: one by one they cost more than their message."""

    def __init__(self) -> None:
        self._pool, self._at = b"", 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A fork must not give the ids that its parent gives."""
        self._pool, self._at = b"", 0

    def draw(self) -> bytes:
        """The next one."""
        at = self._at
        if at == len(self._pool):
            self._pool, at = os.urandom(ID_BYTES * _DRAWN_AT_ONCE), 0
        self._at = at + ID_BYTES
        return self._pool[at : at + ID_BYTES]


_draw = _Ids().draw


def payload_of(message: Message, sender: str) -> bytes:
    """The bytes of a message that needs no `Nats-Msg-Id`. Raises MessageError as `seal`."""
    return encode(message, id=_draw(), created=time.time_ns() // 1000, sender=sender)


def seal(message: Message, sender: str, *, type: str | None = None) -> Sealed:  # noqa: A002
    """Stamps a new id and the time. Raises MessageError where an entry cannot be written."""
    drawn = _draw()
    payload = encode(message, id=drawn, created=time.time_ns() // 1000, sender=sender, type=type)
    return Sealed(payload, drawn.hex())
