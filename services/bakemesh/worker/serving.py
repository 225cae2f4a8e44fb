"""The loop: bytes of the connection to packets, one request at a time, answers back.

Guarantees: one request is worked on at a time, and each is answered once; while one is worked on, CANCEL,
SHUTDOWN and the host's end are seen (`cancelled`, asked by the engine between tokens) and no byte is lost; a
failing engine is an ERR, not the end. Left out: deadlines (the host kills), argv and signals (`__main__`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.ends import WorkerEnd
from bakemesh.protocol.worker.errors import LocalError, PeerError
from bakemesh.protocol.worker.link import State
from bakemesh.protocol.worker.packets import Packet
from bakemesh.worker.engines.base import EngineError
from bakemesh.worker.requests import Desk, Live
from bakemesh.worker.transport import Channel, Piece

Send = Callable[[Sequence[Piece]], None]
# Sends an answer in its own way and says True, or leaves it: how the fake engine misbehaves on the wire.
Spoil = Callable[[Any, Any, "memoryview | None", Send], bool]


class Server:
    """One connection, served until it ends, the host says SHUTDOWN, or `stop` is called."""

    def __init__(self, channel: Channel, end: WorkerEnd, desk: Desk, spoil: Spoil | None = None) -> None:
        self._channel, self._end, self._desk, self._spoil = channel, end, desk, spoil
        self._waiting = self._stopping = False
        self._gone = False  # the host ended the connection
        self._broken: PeerError | None = None
        self._cancel: str | None = None  # target of the last CANCEL
        self._asked = ""  # the req_id that is worked on
        self._live: Live | None = None  # of all requests: what was agreed stays

    def stop(self) -> None:
        """Ends `run` after the request in flight. Safe in a signal handler."""
        self._stopping = True
        if self._waiting:
            self._channel.end_waiting()

    def run(self) -> None:
        """Says HELLO and serves. Returns at a good end. Raises PeerError where the host breaks the rules."""
        self._send(self._end.greeting())
        h.hasten()  # while the host looks at it
        while not self._over():
            self._work()
            if not self._over():
                self._receive()

    def _work(self) -> None:
        # A room of its own, so that the last packet's memory is not held while the next is waited for.
        for got in self._end.packets():
            if isinstance(got, Packet):
                self._take(got)
            else:
                self._send(got)
            if self._over():
                return

    def _over(self) -> bool:
        if self._broken is not None:
            raise self._broken
        return self._gone or self._stopping or self._end.state is State.DRAINING

    def _receive(self) -> None:
        room = self._end.room()
        self._waiting = True
        # A signal before this line is seen here; one after it ends the waiting.
        count = 0 if self._stopping else self._channel.recv_into(room)
        self._waiting = False
        self._received(count)

    def _received(self, count: int) -> None:
        if count:
            self._end.fed(count)
            return
        self._gone = True
        if not self._stopping:
            self._end.ended()

    def _send(self, pieces: Sequence[Piece]) -> None:
        try:
            self._channel.send(pieces)
        except (BrokenPipeError, ConnectionResetError):
            self._gone = True

    # -- a request

    def _take(self, packet: Packet) -> None:
        asked = packet.header
        if isinstance(asked, h.HelloAck | h.Shutdown | h.Cancel):
            return  # the link knows; a CANCEL of nothing in flight is stale
        self._cancel, self._asked = None, asked.req_id
        if self._live is None:
            self._live = Live(self._emit, self._cancelled, self._end.max_frame)
        answer, data = self._answer(asked, packet.data, self._live)
        if self._gone or self._broken is not None:
            return
        pieces = self._pieces(asked.req_id, answer, data)
        if self._spoil is None or not self._spoil(asked, answer, data, self._send):
            self._send(pieces)

    def _answer(self, asked: Any, data: memoryview | None, live: Live) -> tuple[Any, memoryview | None]:
        try:
            return self._desk.answer(asked, data, live)
        except EngineError as error:
            code = error.code if error.code in h.CODES else "inference_failed"
            return h.Err(code=code, msg=error.msg, req_id=asked.req_id), None
        except MemoryError:
            return h.Err(code="oom", msg=f"no memory for this {asked.TYPE}", req_id=asked.req_id), None
        except Exception as error:  # noqa: BLE001  # the border: whatever an engine raises is one request's
            import traceback

            traceback.print_exc(file=sys.stderr)
            said = f"{type(error).__name__}: {error}"
            return h.Err(code="inference_failed", msg=said, req_id=asked.req_id), None

    def _pieces(self, req_id: str, answer: Any, data: memoryview | None) -> Sequence[Piece]:
        try:
            return self._end.send(answer, data)
        except LocalError as error:  # it is too large, known only now
            return self._end.send(h.Err(code="inference_failed", msg=str(error), req_id=req_id))

    # -- while it is worked on

    def _emit(self, token: h.Token) -> None:
        if not self._gone and self._broken is None:
            self._send(self._end.send(token))

    def _cancelled(self) -> bool:
        """Looks at the connection without waiting. True: nobody wants the rest."""
        try:
            self._look()
        except PeerError as error:
            self._broken = error  # raised when the engine has returned: it may be called from C
        return self._gone or self._broken is not None or self._cancel == self._asked

    def _look(self) -> None:
        if self._gone or self._broken is not None:
            return
        self._beside()
        count = self._channel.recv_now(self._end.room())
        if count is not None:
            self._received(count)
            self._beside()

    def _beside(self) -> None:
        for got in self._end.packets():
            if not isinstance(got, Packet):
                self._send(got)
            elif isinstance(got.header, h.Cancel):
                self._cancel = got.header.target
