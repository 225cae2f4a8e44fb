"""Controls: one verb a message, sent as a request, answered at once by a typed Result.

`ctrlseq` is one sequence for each (bake, issuer): max(last+1, now in ms), so that it goes on rising over
restarts of the issuer without any state of its own. A node without a Builder fails at once
(NodeUnreachable). Left out: waiting for the ack on Status; `bake.status()` shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bakemesh.bus.errors import NoResponder, ReplyRefused, RequestTimeout
from bakemesh.protocol import subjects
from bakemesh.protocol.builder.codes import Verb
from bakemesh.protocol.builder.messages import (
    BakeControl,
    Cancel,
    Pause,
    Result,
    RetryStep,
    SkipStep,
    Start,
    Terminate,
)
from bakemesh.supervisor.errors import NodeUnreachable, ResultTimeout

if TYPE_CHECKING:
    from bakemesh.bus import Bus
    from bakemesh.protocol.identity import Identity
    from bakemesh.protocol.message import Message

MESSAGES: dict[Verb, type[BakeControl]] = {
    Verb.PAUSE: Pause,
    Verb.START: Start,
    Verb.CANCEL: Cancel,
    Verb.TERMINATE: Terminate,
    Verb.SKIP_STEP: SkipStep,
    Verb.RETRY_STEP: RetryStep,
}


class ControlSequence:
    """Makes the ctrlseq numbers of one issuer; `now_ms` is wall time, which may jump back: the number never
    does.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def next(self, key: tuple[str, str], now_ms: int) -> int:
        """The next number for the bake `key`, (Supervisor, RecipeID)."""
        number = max(self._last.get(key, 0) + 1, now_ms)
        self._last[key] = number
        return number

    def seen(self, key: tuple[str, str], ctrlseq: int) -> None:
        """A Builder accepted this number from this issuer: the next one is above it."""
        self._last[key] = max(self._last.get(key, 0), ctrlseq)


def control_message(verb: Verb, identity: Identity, ctrlseq: int, issuedby: str) -> BakeControl:
    """The message of a verb."""
    return MESSAGES[verb](**identity.fields(), ctrlseq=ctrlseq, issuedby=issuedby)


async def ask(
    bus: Bus, issuer: str, node_id: str, key: str, message: Message, what: str, timeout: float
) -> Result:
    """Asks a node's Builder; `what` is it in words. A refusal is a Result too.

    Raises NodeUnreachable, ResultTimeout, and the bus's errors.
    """
    subject = subjects.build(bus.mesh, node_id, issuer, key, message.type)
    try:
        answer = await bus.request(subject, message, timeout)
    except NoResponder as error:
        raise NodeUnreachable(node_id) from error
    except RequestTimeout as error:
        raise ResultTimeout(what, node_id, timeout) from error
    if not isinstance(answer.message, Result):
        raise ReplyRefused(subject, f"expected a Result, got {answer.type}")
    return answer.message
