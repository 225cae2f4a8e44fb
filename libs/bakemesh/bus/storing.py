"""Stored publishes: a message goes to its subject, and the stream's acknowledgement is awaited in an inbox of
its own.

The acknowledgement cannot be confused with a typed answer: that one goes where the `Bakemesh-Reply` header
says. One attempt each: repeating (with the same `Sealed`, so that the stream drops what it has already) is
the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nats.aio.msg import Msg

from bakemesh.bus.errors import NoStore, RequestTimeout, StoreTimeout
from bakemesh.bus.jsapi import parse_answer
from bakemesh.bus.link import Link, is_no_responders
from bakemesh.bus.sealing import Sealed

MSG_ID = "Nats-Msg-Id"
REPLY = "Bakemesh-Reply"


@dataclass(frozen=True, slots=True)
class StoredAck:
    """Where a message is stored. `duplicate`: it was there before, by its Nats-Msg-Id; `domain` is the
    server's.
    """

    stream: str
    seq: int
    duplicate: bool = False
    domain: str | None = None


async def publish_stored(
    link: Link,
    subject: str,
    sealed: Sealed,
    *,
    reply: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 5.0,
) -> StoredAck:
    """Publishes and waits until it is stored. A link that is down is waited for within `timeout` (seconds).

    Raises StoreTimeout (it may be stored all the same), NotConnected (it is not), NoStore, StoreFull,
    WrongSequence and the other StoreErrors, AccessDenied, MessageTooLarge, BusClosed.
    """
    carried = {MSG_ID: sealed.msg_id, **(headers or {})}
    if reply is not None:
        carried[REPLY] = reply
    try:
        answer = await link.exchange(subject, sealed.payload, timeout, carried)
    except RequestTimeout:
        raise StoreTimeout(subject, f"not acknowledged within {timeout:g} s; it may be stored") from None
    return parse_ack(subject, answer)


def parse_ack(subject: str, answer: Msg) -> StoredAck:
    """What an acknowledgement says. Raises NoStore where no stream took the message, and the StoreErrors."""
    if is_no_responders(answer):
        raise NoStore(subject, "no stream stores this subject, or the link to its server is down")
    found = parse_answer(subject, answer.data)
    return StoredAck(
        str(found["stream"]), int(found["seq"]), bool(found.get("duplicate", False)), found.get("domain")
    )
