"""One request of this module at a lane on the bus, from its sending to its one end.

Guarantees: it ends once, as its answer or as one LaneFailed; what comes later is dropped; a stream's tokens
come in order without a gap, or it fails. A caller's cancel or deadline is told to the lane by a Cancel; a
generation that was cancelled has `CANCELLED_S` to say how far it came. Left out: which lane, and what is
known of it (`roster`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any

from bakemesh.bus import Bus
from bakemesh.bus.errors import (
    AccessDenied,
    BusClosed,
    BusError,
    MessageTooLarge,
    NoResponder,
    NotConnected,
    ServiceFailed,
)
from bakemesh.bus.sealing import payload_of
from bakemesh.bus.verbs import MALFORMED
from bakemesh.protocol import subjects
from bakemesh.protocol.inference.answers import Answer
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.lanes import (
    LaneCancel,
    LaneError,
    LaneLoaded,
    LaneScores,
    LaneText,
    LaneToken,
    LaneVectors,
)
from bakemesh.protocol.message import Message, Received
from bakemesh.synapse.lanes.base import LaneFailed
from bakemesh.synapse.lanes.failing import failed
from bakemesh.synapse.lanes.roster import UNKNOWN
from bakemesh.telemetry import TRACEPARENT
from bakemesh.workerpool import Call, Token

CANCELLED_S = 5.0
# After these the lane's worker lives, and is free.
_IN_ORDER = frozenset(
    {
        Code.BAD_REQUEST,
        Code.ARTIFACT_INVALID,
        Code.CONFIG_INVALID,
        Code.OOM,
        Code.INFERENCE_FAILED,
        Code.PROBE_REQUIRED,
        Code.CAPABILITY_ABSENT,
        Code.MODEL_UNKNOWN,
        Code.MODEL_LOADING,
    }
)
_NEED_THE_MODEL = (LaneLoaded, LaneVectors, LaneScores, LaneText)


class Flight:
    """Made by whoever sends it. `wanted`: the type of the last answer."""

    def __init__(self, bus: Bus, lane: str, request: Message, wanted: type[Answer], call: Call) -> None:
        self._bus, self.lane, self._wanted, self._call = bus, lane, wanted, call
        self._loop = asyncio.get_running_loop()
        self._node_id, _, self._key = lane.partition("/")
        self._ended: asyncio.Future[Any] = self._loop.create_future()
        self._patient = wanted is LaneText  # a cancelled generation says how far it came
        self._tokens: deque[Token] = deque()
        self._next = 0
        self._news: asyncio.Future[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._cancelled = self._bound = self._sent = False
        self._told = self._unanswered = False  # the lane said it; the server said that there is none
        self._said = bus.conversation(self._subject(request.TYPE), request, self._take, self._failed)

    def _subject(self, type_: str) -> str:
        return subjects.build(self._bus.mesh, self._node_id, self._bus.settings.party, self._key, type_)

    async def send(self, until: float) -> None:
        """Sends it; its caller waits until `until`. Raises LaneFailed."""
        self._timers.append(self._loop.call_at(until, self._expired))
        self._bound = True
        self._call.bind(self._cancel)
        if self._ended.done():
            return
        try:
            self._sent = True
            traces = self._call.traces
            await self._said.send({TRACEPARENT: traces[0]} if traces else None)
        except BusError as error:
            self._failed(error)

    async def answer(self) -> Any:
        """The last answer. Raises LaneFailed."""
        return await self._ended

    async def token(self) -> Token | None:
        """The next one of a stream; None: its end is there. Raises LaneFailed."""
        while not self._tokens:
            if self._ended.done():
                self._ended.result()
                return None
            self._news = self._loop.create_future()
            await self._news
        return self._tokens.popleft()

    @property
    def over(self) -> bool:
        """Whether it has its end."""
        return self._ended.done()

    @property
    def seen(self) -> bool:
        """Whether a part of its text came."""
        return self._next > 0

    async def settled(self) -> None:
        """Returns when it has its end, whichever."""
        await asyncio.wait({self._ended})

    def tells(self) -> tuple[str | None, bool]:
        """What its end tells of the lane: its state (None: nobody is there), and whether it has the model."""
        error = self._ended.exception()
        if error is None:
            return "idle", self._wanted in _NEED_THE_MODEL
        assert isinstance(error, LaneFailed)
        if self._unanswered:
            return None, False
        return ("idle" if self._told and error.error.code in _IN_ORDER else UNKNOWN), False

    def abandon(self, why: str) -> None:
        """Its module ends: so does it."""
        self._tell_cancel()
        self.lost(why)

    def close(self) -> None:
        """Its caller has gone, or has what it wanted. Idempotent."""
        if not self._ended.done():
            self._tell_cancel()
            self._end_with(failed(error_of(Code.CANCELLED, f"nobody waits for lane {self.lane} any more")))
        self._ended.exception()  # taken: maybe nobody awaits it any more

    def lost(self, why: str) -> None:
        """It has come to nothing over there, and will never be answered."""
        said = f"lane {self.lane} gave no answer: {why}"
        self._end_with(failed(error_of(Code.MODULE_RESTARTED, said), seen=self.seen))

    # -- what ends it

    def _take(self, received: Received) -> None:
        message: Any = received.message
        if self._ended.done() or getattr(message, "request", None) != self._said.id:
            return
        if isinstance(message, LaneToken) and self._wanted is LaneText:
            self._token(message)
        elif isinstance(message, LaneError):
            self._told = True
            self._end_with(failed(message.value(), seen=self.seen))
        elif isinstance(message, self._wanted):
            self._end(message)
        else:
            said = f"lane {self.lane} answered with {received.type}, not {self._wanted.TYPE}"
            self._end_with(failed(error_of(Code.INFERENCE_FAILED, said), seen=self.seen))

    def _token(self, token: LaneToken) -> None:
        if token.index != self._next:
            self._tell_cancel()
            said = f"tokens {self._next} to {token.index - 1} of lane {self.lane} were lost on the way"
            self._end_with(failed(error_of(Code.INFERENCE_FAILED, said), seen=True))
            return
        self._next += 1
        self._tokens.append(Token(token.index, token.text))
        self._tell()

    def _failed(self, error: BusError) -> None:
        if not self._ended.done():
            self._unanswered = isinstance(error, NoResponder)
            self._end_with(_of_bus(error, self.lane, seen=self.seen))

    def _expired(self) -> None:
        if self._ended.done():
            return
        self._tell_cancel()
        said = f"the caller's time was over before lane {self.lane} answered"
        self._end_with(failed(error_of(Code.DEADLINE_EXCEEDED, said), seen=self.seen))

    def _cancel(self) -> None:
        if self._cancelled or self._ended.done():
            return
        self._cancelled = True
        self._tell_cancel()
        if self._patient and self._sent:
            self._timers.append(self._loop.call_later(CANCELLED_S, self._gave_up))
        else:
            self._gave_up()

    def _gave_up(self) -> None:
        if not self._ended.done():
            said = f"the request at lane {self.lane} was cancelled"
            self._end_with(failed(error_of(Code.CANCELLED, said), seen=self.seen))

    def _tell_cancel(self) -> None:
        if self._sent:
            payload = payload_of(LaneCancel(request=self._said.id), self._bus.settings.sender)
            with contextlib.suppress(BusError):
                self._bus.link.post(self._subject(LaneCancel.TYPE), payload)

    def _end(self, message: Any) -> None:
        self._ended.set_result(message)
        self._over()

    def _end_with(self, error: LaneFailed) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)
            self._over()

    def _over(self) -> None:
        self._said.close()
        if self._bound:
            self._call.unbind(self._cancel)
        for timer in self._timers:
            timer.cancel()
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def _of_bus(error: BusError, lane: str, *, seen: bool) -> LaneFailed:
    """What a failure of the bus tells of a request."""
    match error:
        case NoResponder():
            said = error_of(Code.LANE_BUSY, f"nobody answers for lane {lane}: its host is gone")
        case NotConnected():
            said = error_of(Code.LANE_BUSY, f"lane {lane} was not asked: {error}")
        case MessageTooLarge() as large:
            reason = f"a request of {large.size} bytes to lane {lane}; the server takes {large.limit}: cut it"
            return LaneFailed(error_of(Code.BAD_REQUEST, reason), begun=False)
        case AccessDenied():
            said = error_of(Code.CAPABILITY_ABSENT, f"lane {lane} was not asked: {error}")
        case ServiceFailed(code=code) if code == MALFORMED:
            return LaneFailed(error_of(Code.BAD_REQUEST, f"lane {lane}: {error}"), begun=False)
        case BusClosed():
            said = error_of(Code.MODULE_RESTARTED, f"lane {lane}: {error}")
        case _:
            said = error_of(Code.INFERENCE_FAILED, f"lane {lane}: {error}")
    return failed(said, seen=seen)
