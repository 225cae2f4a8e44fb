"""What a pull consumer tells of its messages: where one stands, and what a status means. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nats.aio.msg import Msg

from bakemesh.protocol.numerals import whole

_SHORT, _LONG = 9, 11


@dataclass(frozen=True, slots=True)
class Place:
    """Where a delivered message stands: its sequence in the stream, how many messages its consumer has
    delivered with it (a redelivery counts again), how often it was delivered itself, how many wait behind
    it.
    """

    consumer: str
    sequence: int
    delivered: int
    times: int
    pending: int


def place(reply: str) -> Place | None:
    """Reads the acknowledgement subject, in both its forms; None when it is none (a status message).

    `$JS.ACK.<stream>.<consumer>.<times>.<sequence>.<delivered>.<time>.<pending>`; the longer form has
    domain and account before the stream, and may end in a random token.
    """
    if not reply.startswith("$JS.ACK."):
        return None
    tokens = reply.split(".")
    first = 2 if len(tokens) == _SHORT else 4
    if first == 4 and len(tokens) < _LONG:
        return None
    try:
        times, sequence, delivered = (int(token) for token in tokens[first + 2 : first + 5])
        return Place(tokens[first + 1], sequence, delivered, times, int(tokens[first + 6]))
    except ValueError:
        return None


def status(msg: Msg) -> tuple[int, str]:
    """Code and text of a status message; 0 where it has none."""
    headers = msg.headers or {}
    return whole(headers.get("Status", "")) or 0, headers.get("Description", "")
