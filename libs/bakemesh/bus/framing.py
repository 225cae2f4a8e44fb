"""Hands a message to the connection as the bytes of the protocol.

The client library's own way has a coroutine in a coroutine for each message, looks each subject over anew,
and copies each payload. Does what the library's `publish` does, in the same order, and nothing else; what
goes in must have been checked (`is_token`): the library's own checks are not made. Left out: sending while
the link is down, and payloads that are too large.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bakemesh.bus.errors import NotConnected
from bakemesh.bus.transport import WideTransport

if TYPE_CHECKING:
    from bakemesh.bus.link import Link

HEAD_ROOM = 1024  # the server counts headers as payload; more than ours ever take
_SMALL = 4096  # below it, joining is cheaper than three pieces
_TURN = 2**16  # so much pending, and whoever publishes without a pause gives the sending its turn
_END = b"\r\n"


def is_token(text: str) -> bool:
    """Whether `text` can be a subject or a header's value: not empty, no blank, nothing unprintable."""
    return text.isprintable() and " " not in text and text != ""


def headers(msg_id: str, expected: int, behind: str | None) -> bytes:
    """The header block of a row: its id, the sequence before its own, the id of the row before it where
    that counts.
    """
    after = f"Nats-Expected-Last-Msg-Id: {behind}\r\n" if behind is not None else ""
    own = f"Nats-Msg-Id: {msg_id}\r\nNats-Expected-Last-Sequence: {expected}\r\n"
    return f"NATS/1.0\r\n{own}{after}\r\n".encode()


@lru_cache(maxsize=4096)
def opening(subject: str) -> bytes | None:
    """The begin of a frame without headers; None for a subject that is none."""
    return f"PUB {subject} ".encode() if is_token(subject) else None


def plain(begin: bytes, reply: str, payload: bytes) -> bytes:
    """A message without headers; `begin` is of `opening`."""
    if reply:
        return b"%b%b %d\r\n%b\r\n" % (begin, reply.encode(), len(payload), payload)
    return b"%b%d\r\n%b\r\n" % (begin, len(payload), payload)


def push(client: Any, frame: bytes, payload_size: int) -> bool:
    """Hands over a frame to a client that is connected; whether the caller is to `settle` then."""
    stats = client.stats
    stats["out_msgs"] += 1
    stats["out_bytes"] += payload_size
    if not client._pending and type(client._transport) is WideTransport and client._transport.takes(frame):
        return False
    client._pending.append(frame)
    before = client._pending_data_size
    client._pending_data_size = pending = before + len(frame)
    return bool(pending // _TURN > before // _TURN or client._flush_queue.empty())


async def settle(client: Any, *, turn: bool = False) -> None:
    """Sees to it that what is pending goes out, and waits where too much is. With `turn` much is sent now:
    the client library by itself would send nothing before two megabytes, or before the publisher pauses.
    """
    if client._pending_data_size > client._max_pending_size > 0:
        await client._flush_pending(force_flush=True)
    if client._flush_queue.empty():
        await client._flush_pending()
    if turn and client._pending_data_size >= _TURN:
        await asyncio.sleep(0)


def kick(client: Any) -> None:
    """Sees to it that what is pending goes out, from where nothing can be awaited; however much it is."""
    if client._flush_queue.empty():
        client._flush_queue.put_nowait(asyncio.get_running_loop().create_future())


async def send(link: Link, subject: str, reply: str, header: bytes, payload: bytes) -> None:
    """Hands over a message with headers. What is handed over first, goes first: nothing is awaited before
    that.

    Raises NotConnected.
    """
    if not link.connected:
        raise NotConnected(f"{subject}: not sent, the link is down")
    client = link._client
    size = len(header) + len(payload)
    head = f"HPUB {subject} {reply} {len(header)} {size}\r\n".encode() + header
    if size < _SMALL:
        if push(client, head + payload + _END, len(payload)):
            await settle(client)
    else:
        client.stats["out_msgs"] += 1
        client.stats["out_bytes"] += len(payload)
        client._pending += (head, payload, _END)
        client._pending_data_size += len(head) + len(payload) + 2
        await settle(client)
