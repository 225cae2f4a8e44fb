"""One request at one node: sent once, its answers taken in order, until the last one or until it is lost.

    sent ── Vectors, Token, Progress, Alive ──→ sent
    sent ── the last answer, Error, deadline, loss ──→ ended

Guarantees: `next` gives each answer of this request once, and raises one error at most; what comes after the
end, of another request, or twice, is dropped; a flight that is closed before its end sends a Cancel. Left
out: where to go next (`carrying`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TypeVar

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError, NoResponder, ReplyRefused, ServiceFailed
from bakemesh.bus.verbs import MALFORMED
from bakemesh.inference.errors import AnswerBroken, NodeGone, raised, refused
from bakemesh.protocol.inference.answers import (
    Alive,
    Answer,
    Error,
    Progress,
    Token,
    Vectors,
)
from bakemesh.protocol.inference.errors import Code
from bakemesh.protocol.message import Message, Received
from bakemesh.protocol.subjects import ANY_NODE

A = TypeVar("A", bound=Answer)


class Flight:
    """A request on its way. `node_id`: where it was sent, `any` until somebody answers; `run`: what the node
    was when it left.
    """

    __slots__ = (
        "_answers",
        "_conversation",
        "_error",
        "_timer",
        "_waiting",
        "ended",
        "key",
        "lost",
        "node_id",
        "run",
        "target",
    )

    def __init__(
        self, bus: Bus, subject: str, key: str, message: Message, target: str, run: str, deadline: float
    ) -> None:
        loop = asyncio.get_running_loop()
        self.target = self.node_id = target
        self.key, self.run = key, run
        self.ended = False  # whether its last answer, or its error, has come
        self.lost = False  # whether it was given up while its node may yet work on it
        self._answers: deque[Answer] = deque()
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._conversation = bus.conversation(subject, message, self._take, self._failed)
        self._timer = loop.call_at(deadline, self._late, deadline - loop.time())

    @property
    def id(self) -> bytes:
        """The request's envelope id."""
        return self._conversation.id

    async def send(self, headers: Mapping[str, str] | None = None) -> None:
        """Sends it. Raises NotConnected, BusClosed."""
        await self._conversation.send(headers)

    async def next(self) -> Answer:
        """The next answer. Raises the InferenceError, or the bus's error, that ended it."""
        while not self._answers:
            if self._error is not None:
                raise self._error
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._answers.popleft()

    @property
    def done(self) -> bool:
        """Whether `next` gave its last answer."""
        return self.ended and not self._answers

    def lose(self, why: str) -> None:
        """Ends it with NodeGone: nothing more is expected from its node."""
        if not self.ended:
            self.lost = True
            self.fail(NodeGone(why, self.node_id))

    def fail(self, error: Exception) -> None:
        """Ends it with this error, unless it has ended."""
        if self.ended:
            return
        self.ended, self._error = True, error
        self._wake()

    def close(self) -> bool:
        """Takes nothing more. Gives whether it had not ended yet. Idempotent."""
        self._timer.cancel()
        self._conversation.close()
        early, self.ended = not self.ended, True
        return early

    # -- what comes in

    def _take(self, received: Received) -> None:
        message = received.message
        if self.ended or not isinstance(message, Answer) or message.request != self.id:
            if not self.ended and not isinstance(message, Answer):
                self.fail(
                    AnswerBroken(f"{received.type[:80]} is no answer to a request", self._from(received))
                )
            return
        node_id = self._from(received)
        if self.node_id == ANY_NODE:
            self.node_id = node_id
        if isinstance(message, Alive):
            return
        if isinstance(message, Error):
            self.fail(raised(message.value(), node_id))
            return
        self._answers.append(message)
        self.ended = is_last(message)
        self._wake()

    def _failed(self, error: BusError) -> None:
        self.fail(_told(error, self.target))

    def _late(self, seconds: float) -> None:
        self.lost = self.lost or not self.ended
        where = "" if self.node_id == ANY_NODE else f" from node {self.node_id}"
        self.fail(
            refused(Code.DEADLINE_EXCEEDED, f"no answer{where} within the {seconds:.3g} s that were left")
        )

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _from(self, received: Received) -> str:
        return received.sender.rpartition("@")[2][:64]


def is_last(answer: Answer) -> bool:
    """Whether no answer comes after it."""
    if isinstance(answer, Vectors):
        return answer.final
    return not isinstance(answer, Token | Alive | Progress)


def _told(error: BusError, target: str) -> Exception:
    """A failure that the bus tells, as what it means here."""
    if isinstance(error, NoResponder):
        return NodeGone("nobody answers there: no synapse module runs", target, reached=False)
    if isinstance(error, ReplyRefused):
        return AnswerBroken(str(error), target)
    if isinstance(error, ServiceFailed):
        code = Code.BAD_REQUEST if error.code == MALFORMED else Code.INFERENCE_FAILED
        return refused(code, f"the module answered {error.code}: {error.description}")
    return error


def expected(answer: Answer, kind: type[A], node_id: str) -> A:
    """The answer, where it is of this kind. Raises AnswerBroken."""
    if not isinstance(answer, kind):
        raise AnswerBroken(f"{answer.type} came where {kind.TYPE} was expected", node_id)
    return answer
