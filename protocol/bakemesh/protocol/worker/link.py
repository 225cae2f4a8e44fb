"""Which message may follow which: one table, the same for both ends.

    HANDSHAKE ──HELLO──→ GREETED ──HELLO_ACK──→ IDLE ──request──→ BUSY ──answer──→ IDLE
                                                 │                 │ TOKEN, CANCEL, ERR of a CANCEL
                                                 │                 └──SHUTDOWN──→ DRAINING (TOKEN, answer)
                                                 └──SHUTDOWN──→ DRAINING
    from everywhere: EOF ──→ CLOSED

A CANCEL that comes when nothing is in flight is stale and ignored, for it may have crossed the answer; the
ERR that says "cannot" may cross the next request in turn. A missing key is the violation. What a worker
answers without an engine (unknown types, broken headers) never enters the link: see `ends`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.errors import OutOfStep


class State(StrEnum):
    """Where the conversation is."""

    HANDSHAKE = "handshake"
    GREETED = "greeted"
    IDLE = "idle"
    BUSY = "busy"
    DRAINING = "draining"
    CLOSED = "closed"


class Event(StrEnum):
    """What a message does to it."""

    HELLO = "hello"
    ACK = "ack"
    REQUEST = "request"
    PART = "part"
    ANSWER = "answer"
    CANCEL = "cancel"
    CANNOT = "cannot"  # the ERR that answers a CANCEL
    SHUTDOWN = "shutdown"
    EOF = "eof"


TABLE: dict[tuple[State, Event], State] = {
    (State.HANDSHAKE, Event.HELLO): State.GREETED,
    (State.GREETED, Event.ACK): State.IDLE,
    (State.IDLE, Event.REQUEST): State.BUSY,
    (State.IDLE, Event.CANCEL): State.IDLE,
    (State.IDLE, Event.CANNOT): State.IDLE,
    (State.IDLE, Event.SHUTDOWN): State.DRAINING,
    (State.BUSY, Event.PART): State.BUSY,
    (State.BUSY, Event.CANCEL): State.BUSY,
    (State.BUSY, Event.CANNOT): State.BUSY,
    (State.BUSY, Event.ANSWER): State.IDLE,
    (State.BUSY, Event.SHUTDOWN): State.DRAINING,
    (State.DRAINING, Event.PART): State.DRAINING,
    (State.DRAINING, Event.CANCEL): State.DRAINING,
    (State.DRAINING, Event.CANNOT): State.DRAINING,
    (State.DRAINING, Event.ANSWER): State.DRAINING,
    **{(state, Event.EOF): State.CLOSED for state in State},
}

MOST_CANCELS = 64  # remembered at a time

# request → what may end it, beside ERR
ANSWERS: dict[str, str] = {
    h.Load.TYPE: h.Loaded.TYPE,
    h.EmbedBatch.TYPE: h.Vectors.TYPE,
    h.Rerank.TYPE: h.Scores.TYPE,
    h.Generate.TYPE: h.Text.TYPE,
    h.GenerateStream.TYPE: h.Text.TYPE,
    h.ModelInfo.TYPE: h.Model.TYPE,
    h.Unload.TYPE: h.Unloaded.TYPE,
    h.Ping.TYPE: h.Pong.TYPE,
}


class Link(NamedTuple):  # made twice a request: a third of a frozen dataclass's time
    """The conversation as one end sees it: a value. `request`: what is in flight, by type and req_id.

    `cancels`, `earlier`: req_ids of CANCELs that an ERR may still answer; `earlier` were sent before the
    request that is in flight, and as a worker reads in order, its answer ends their time.
    """

    state: State = State.HANDSHAKE
    request: tuple[str, str] | None = None
    cancels: frozenset[str] = frozenset()
    earlier: frozenset[str] = frozenset()

    def after(self, header: Any) -> Link:
        """The link after this message, whoever sent it. Raises OutOfStep and changes nothing."""
        event = self._event(header)
        if not self.cancels and not self.earlier:  # nearly always: what the rest would say, said sooner
            if event is Event.REQUEST and self.state is State.IDLE:
                return Link(State.BUSY, (header.TYPE, header.req_id))
            if event is Event.ANSWER and self.state is State.BUSY:
                self._check_answer(header)
                return _IDLE
        found = TABLE.get((self.state, event))
        if found is None:
            raise OutOfStep(f"{_named(header)} may not come while the link is {self.state}")
        if event is Event.REQUEST:
            self._check_new(header)
            return Link(found, (header.TYPE, header.req_id), earlier=self.cancels)
        if event is Event.ANSWER:
            self._check_answer(header)
            return Link(found, None, self.cancels)
        if event is Event.CANCEL:
            self._check_new(header)
            return Link(found, self.request, self.cancels | {header.req_id}, self.earlier)
        if event is Event.CANNOT:
            gone = frozenset({header.req_id})
            return Link(found, self.request, self.cancels - gone, self.earlier - gone)
        if event is Event.PART:
            self._check_part(header)
            return self
        return Link(found, self.request, self.cancels, self.earlier)

    def closed(self) -> Link:
        """The link after the connection's end."""
        return Link(TABLE[self.state, Event.EOF])

    def _event(self, header: Any) -> Event:
        if isinstance(header, h.Err):
            # One without a req_id answers what is in flight: the peer could not read it.
            return Event.CANNOT if header.req_id in self.cancels | self.earlier else Event.ANSWER
        return _EVENTS[header.TYPE]

    def _check_new(self, header: Any) -> None:
        used = self.cancels | self.earlier
        if header.req_id in used or (self.request is not None and header.req_id == self.request[1]):
            raise OutOfStep(f"{_named(header)}: this req_id is in use")
        if isinstance(header, h.Cancel) and len(self.cancels) >= MOST_CANCELS:
            raise OutOfStep(f"{_named(header)}: more than {MOST_CANCELS} of them for one request")

    def _check_answer(self, header: Any) -> None:
        if self.request is None:
            raise OutOfStep(f"{_named(header)}: nothing is in flight")
        kind, req_id = self.request
        if isinstance(header, h.Err):
            if header.req_id not in (None, req_id):
                raise OutOfStep(
                    f"{_named(header)} answers another request than {req_id!r}, which is in flight"
                )
            return
        if header.req_id != req_id:
            raise OutOfStep(f"{_named(header)} answers another request than {req_id!r}, which is in flight")
        if ANSWERS.get(kind) != header.TYPE:
            raise OutOfStep(f"{_named(header)} is no answer to {kind}")

    def _check_part(self, header: Any) -> None:
        if self.request is None or self.request != (h.GenerateStream.TYPE, header.req_id):
            raise OutOfStep(f"{_named(header)}: no such stream is in flight")


_IDLE = Link(State.IDLE)
_EVENTS: dict[str, Event] = {
    h.Hello.TYPE: Event.HELLO,
    h.HelloAck.TYPE: Event.ACK,
    h.Token.TYPE: Event.PART,
    h.Cancel.TYPE: Event.CANCEL,
    h.Shutdown.TYPE: Event.SHUTDOWN,
    **dict.fromkeys(ANSWERS, Event.REQUEST),
    **dict.fromkeys(ANSWERS.values(), Event.ANSWER),
}


def _named(header: Any) -> str:
    req_id = getattr(header, "req_id", None)
    return str(header.TYPE) if req_id is None else f"{header.TYPE} {req_id!r}"
