"""Hands a message to the connection as the bytes of the protocol.

For the stream writer alone, which sends so many that the client library's header handling and its copy of
each payload are what costs most. Does what the library's `publish` does, in the same order, and nothing
else; what goes in must have been checked (`is_token`): the library's own checks are not made. Left out:
sending while the link is down.
"""

from __future__ import annotations

from bakemesh.bus.errors import NotConnected
from bakemesh.bus.link import Link

HEAD_ROOM = 1024  # the server counts headers as payload; more than ours ever take
_SMALL = 4096  # below it, joining is cheaper than three pieces
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


async def send(link: Link, subject: str, reply: str, header: bytes, payload: bytes) -> None:
    """Hands over one message. What is handed over first, goes first: nothing is awaited before that.

    Raises NotConnected.
    """
    if not link.connected:
        raise NotConnected(f"{subject}: not sent, the link is down")
    client = link._client
    size = len(header) + len(payload)
    head = f"HPUB {subject} {reply} {len(header)} {size}\r\n".encode() + header
    client.stats["out_msgs"] += 1
    client.stats["out_bytes"] += len(payload)
    if size < _SMALL:
        await client._send_command(head + payload + _END)
    else:
        client._pending += (head, payload)
        client._pending_data_size += len(head) + len(payload)
        await client._send_command(_END)
    if client._flush_queue is not None and client._flush_queue.empty():
        await client._flush_pending()
