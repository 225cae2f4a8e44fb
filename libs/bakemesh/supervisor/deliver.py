"""Sending what must be stored: a recipe, a part of a push.

Guarantees: a message is resent, byte for byte, until a stream has acknowledged it or the time is up; the
same envelope id makes a second copy harmless (the stream drops it, or the Builder answers it with the same
Result).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bakemesh.bus.errors import NoStore, NotConnected, ReplyRefused, RequestTimeout, StoreUnavailable
from bakemesh.protocol.builder.messages import Result
from bakemesh.supervisor.errors import MessageTooLarge, NotStored

if TYPE_CHECKING:
    from bakemesh.bus import Bus, Sealed
    from bakemesh.bus.replies import InboxReply

ACK_S = 2.0
STORE_S = 10.0
HEADER_BYTES = 1024  # Nats-Msg-Id and Bakemesh-Reply count against max_payload as well
_PAUSES_S = (0.05, 0.1, 0.25, 0.5)


def check_size(what: str, sealed: Sealed, max_payload: int) -> None:
    """Raises MessageTooLarge where the server would refuse the message."""
    size = len(sealed.payload) + HEADER_BYTES
    if size > max_payload:
        raise MessageTooLarge(what, size, max_payload, "the server (max_payload)")


async def store(bus: Bus, subject: str, sealed: Sealed, reply: str, *, within: float = STORE_S) -> None:
    """Returns when a stream has the message.

    Raises NotStored when none acknowledged it within `within` seconds (it may be stored all the same), and
    at once the bus errors that resending cannot mend (AccessDenied, StoreFull, BusClosed …).
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    tries = 0
    while True:
        left = max(0.1, deadline - loop.time())
        try:
            await bus.publish_stored(subject, sealed, reply, timeout=min(ACK_S, left))
            return
        except NoStore as error:
            reason = (
                f"no inbox takes it (no Builder was ever on this mesh, or its hub is out of reach): {error}"
            )
        except (StoreUnavailable, NotConnected) as error:
            reason = str(error)
        pause = _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]
        tries += 1
        if loop.time() + pause > deadline:
            raise NotStored(f"{subject}: not acknowledged within {within:g} s, {tries} times sent: {reason}")
        await asyncio.sleep(pause)


async def result(reply: InboxReply, timeout: float) -> Result:
    """The typed Result at `reply`. Raises RequestTimeout, ReplyRefused (it is no Result), ServiceFailed,
    BusClosed.
    """
    answer = await reply.received(timeout)
    if not isinstance(answer.message, Result):
        raise ReplyRefused(reply.subject, f"expected {Result.TYPE}, got {answer.type}")
    return answer.message


async def result_if_there(reply: InboxReply) -> Result | None:
    """The Result if it has arrived."""
    try:
        return await result(reply, 0)
    except RequestTimeout:
        return None
