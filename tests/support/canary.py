"""Canaries: random texts that steps print, and the proof that none of them ever shows in a Status.

A Status could leak payload raw, encoded, or a piece at a time, so the tap keeps every Status and outcome body
as it went over the bus and `assert_silent` looks for the canary whole, in base64 (at each alignment), in hex,
and for every piece of it of eight characters.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bakemesh.bus import Bus
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.messages import BakeStatus
from bakemesh.protocol.subjects import BAKE, OUTCOMES, pattern

PIECE = 8
_PLAIN = re.compile(rb"[A-Za-z0-9+/]{%d,}" % PIECE)  # every trace is written so


def canary() -> str:
    """A text that nothing else contains."""
    return f"canary{secrets.token_hex(16)}"


def traces(text: str) -> set[bytes]:
    """Everything by which `text` would betray itself."""
    raw = text.encode()
    found = {raw, raw.hex().encode(), raw[::-1]}
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw)
        found.add(encoded[4:-4])
    # "canary" itself may stand in a step's name: only the random part counts in pieces.
    secret = raw.removeprefix(b"canary")
    found.update(secret[i : i + PIECE] for i in range(len(secret) - PIECE + 1))
    return found


class StatusTap:
    """Every Status and outcome body of a mesh, as it was sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.statuses: list[BakeStatus] = []

    def take(self, delivery: Delivery) -> None:
        self.bodies.append(bytes(delivery.payload))
        message = delivery.received.message
        assert isinstance(message, BakeStatus)
        self.statuses.append(message)

    def assert_silent(self, *canaries: str) -> None:
        """No body holds a trace of any canary. There must have been bodies to look at."""
        assert self.bodies, "no Status was seen: the check would prove nothing"
        marks = {mark for text in canaries for mark in traces(text)}
        heads = {mark[:PIECE] for mark in marks}
        for body in self.bodies:
            # Thousands of marks in thousands of bodies: looked for only where one begins.
            for run in _PLAIN.finditer(body):
                word = run[0]
                if any(word[at : at + PIECE] in heads for at in range(len(word) - PIECE + 1)):
                    leaked = [mark for mark in marks if mark in body]
                    assert not leaked, f"a Status holds payload: {leaked[0]!r}"


@asynccontextmanager
async def tapped(bus: Bus) -> AsyncIterator[StatusTap]:
    """Listens to every Status and outcome while the test runs."""
    tap = StatusTap()
    subscriptions = [
        await bus.subscribe(pattern(bus.mesh, f"{BAKE}.{name}"), tap.take) for name in ("Status", *OUTCOMES)
    ]
    try:
        yield tap
    finally:
        for subscription in subscriptions:
            await subscription.stop()
