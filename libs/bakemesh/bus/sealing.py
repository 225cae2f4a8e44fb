"""Puts a message into its envelope: the one place that draws ids and reads the clock for it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from bakemesh.protocol.envelope import ID_BYTES
from bakemesh.protocol.message import Message, encode


@dataclass(frozen=True, slots=True)
class Sealed:
    """A message as it travels: its payload, and the `Nats-Msg-Id` that goes with it (the envelope's id in
    hex).
    """

    payload: bytes
    msg_id: str


def seal(message: Message, sender: str, *, type: str | None = None) -> Sealed:  # noqa: A002
    """Stamps a new id and the time. Raises MessageError where an entry cannot be written."""
    drawn = os.urandom(ID_BYTES)
    payload = encode(message, id=drawn, created=time.time_ns() // 1000, sender=sender, type=type)
    return Sealed(payload, drawn.hex())
