"""The two roles on one connection: bytes in, packets out, and nothing out of step.

    host = HostEnd(nonce)                       worker = WorkerEnd(hello)
    host.room(), host.fed(n)                    sock.sendall(worker.greeting())
    for packet in host.packets(): …             …
    host.send(header, data) -> pieces           worker.send(header, data) -> pieces

Guarantees: what `packets` gives may come now, answers what is in flight, and fits what was asked (n of
VECTORS, the length of raw frames, TOKEN's index); everything else is a PeerError, after which the end is
dead: it raises the same again, and sends nothing. A worker's end answers by itself what no engine has to see:
unknown types and headers that lack a field. Left out: I/O, clocks, deadlines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bakemesh.protocol.worker import headers as h
from bakemesh.protocol.worker.errors import (
    LocalError,
    NonceRefused,
    NotAccepted,
    OutOfStep,
    PeerError,
    VersionRefused,
)
from bakemesh.protocol.worker.frames import FIRST_MAX, MAX_FRAME, SMALLEST_MAX
from bakemesh.protocol.worker.link import Link, State
from bakemesh.protocol.worker.packets import Packet, PacketReader, Refused, pieces

Pieces = list[bytes | memoryview]
_FROM_WORKER: frozenset[type] = frozenset(
    {h.Hello, h.Loaded, h.Vectors, h.Scores, h.Text, h.Token, h.Model, h.Unloaded, h.Pong, h.Err}
)
_FROM_HOST: frozenset[type] = frozenset(
    {
        h.HelloAck, h.Load, h.EmbedBatch, h.Rerank, h.Generate, h.GenerateStream, h.Cancel, h.ModelInfo,
        h.Unload, h.Ping, h.Shutdown,
    }
)  # fmt: skip
_SHORT = 400  # characters of a message that fit into the smallest frame, however they are written


class _End:
    def __init__(self, max_frame: int, untyped: str) -> None:
        if not SMALLEST_MAX <= max_frame < 1 << 32:
            raise ValueError(f"max_frame is {max_frame}; it must be from {SMALLEST_MAX} to {(1 << 32) - 1}")
        self.max_frame = max_frame
        self.link = Link()
        self._reader = PacketReader(min(max_frame, FIRST_MAX), untyped=untyped)
        self._failed: PeerError | None = None

    @property
    def state(self) -> State:
        """Where the conversation is."""
        return self.link.state

    def room(self) -> memoryview:
        """Where the next bytes of the connection go."""
        return self._reader.room()

    def fed(self, count: int) -> None:
        """`count` bytes were put there."""
        self._reader.fed(count)

    def ended(self) -> None:
        """The connection ended. Raises FrameCut where that was inside a packet."""
        self.link = self.link.closed()
        self._reader.ended()

    def _next(self) -> Packet | Refused | None:
        if self._failed is not None:
            raise self._failed
        return self._reader.next()

    def _fail(self, error: PeerError) -> PeerError:
        self.link = self.link.closed()
        self._failed = error
        return error

    def _agree(self, theirs: int) -> None:
        if theirs < SMALLEST_MAX:
            raise PeerError(f"the peer takes frames of {theirs} bytes; {SMALLEST_MAX} is the least")
        self.max_frame = min(self.max_frame, theirs)
        self._reader.frames.limit = self.max_frame

    def _out(self, header: Any, data: bytes | memoryview | None, allowed: frozenset[type]) -> Pieces:
        if type(header) not in allowed:
            raise LocalError(f"{type(header).__name__} is not for this end to send")
        try:
            after = self.link.after(header)
        except OutOfStep as error:
            raise LocalError(str(error)) from error
        out = pieces(header, data, self.max_frame)
        self.link = after
        return out


class HostEnd(_End):
    """The host's end: waits for HELLO, sends requests."""

    def __init__(self, nonce: str, max_frame: int = MAX_FRAME) -> None:
        super().__init__(max_frame, untyped=h.Hello.TYPE)
        self._nonce = nonce
        self.hello: h.Hello | None = None
        self._asked: Any = None
        self._tokens = 0

    @property
    def can(self) -> frozenset[str]:
        """The added types that the worker says it knows."""
        return frozenset(self.hello.types if self.hello else ()) & frozenset(h.ADDED_TYPES)

    def packets(self) -> Iterator[Packet]:
        """The packets that came, one by one. Raises PeerError. After HELLO: send `ack`."""
        try:
            while (found := self._next()) is not None:
                yield self._checked(found)
        except PeerError as error:
            raise self._fail(error) from None

    def ack(self) -> Pieces:
        """The answer to HELLO; both keep to the smaller max_frame from here on."""
        if self.hello is None:
            raise LocalError("HELLO_ACK before a HELLO")
        self._agree(self.hello.max_frame)
        header = h.HelloAck(v=h.VERSION, accept=True, max_frame=self.max_frame)
        return self._out(header, None, _FROM_HOST)

    def send(self, header: Any, data: bytes | memoryview | None = None) -> Pieces:
        """What goes out. Raises LocalError where it may not, or the worker did not say that it knows it."""
        if isinstance(header, h.Header) and header.TYPE in h.ADDED_TYPES and header.TYPE not in self.can:
            raise LocalError(f"this worker does not know {header.TYPE}")
        if isinstance(header, h.HelloAck):
            raise LocalError("HELLO_ACK is sent by `ack`")
        out = self._out(header, data, _FROM_HOST)
        if not isinstance(header, h.Cancel | h.Shutdown):
            self._asked, self._tokens = header, 0
        return out

    def _checked(self, found: Packet | Refused) -> Packet:
        if isinstance(found, Refused):
            raise PeerError(f"the worker's {found.error}")
        header = found.header
        if type(header) not in _FROM_WORKER:
            raise OutOfStep(f"{getattr(header, 'type', None) or header.TYPE!r} is not for a worker to send")
        after = self.link.after(header)
        if isinstance(header, h.Hello):
            self._greet(header)
        elif isinstance(header, h.Vectors | h.Scores):
            self._check_tensor(header, found.data)
        elif isinstance(header, h.Token):
            if header.index != self._tokens:
                raise OutOfStep(f"TOKEN has the index {header.index}; {self._tokens} is next")
            self._tokens += 1
        self.link = after
        return found

    def _greet(self, hello: h.Hello) -> None:
        import hmac  # OpenSSL comes with it, which a worker's start can do without

        if not hmac.compare_digest(hello.nonce.encode(), self._nonce.encode()):
            raise NonceRefused("a HELLO with another nonce: not the worker that was started for this socket")
        if hello.v != h.VERSION:
            raise VersionRefused(hello.v, h.VERSION)
        if hello.max_frame < SMALLEST_MAX:
            raise PeerError(
                f"the worker takes frames of {hello.max_frame} bytes; {SMALLEST_MAX} is the least"
            )
        self.hello = hello

    def _check_tensor(self, header: Any, data: memoryview | None) -> None:
        asked, size = self._asked, 0 if data is None else data.nbytes
        if isinstance(header, h.Vectors):
            wanted = len(asked.items)
            if header.n != wanted:
                raise OutOfStep(f"VECTORS has n={header.n}; {wanted} items were asked for")
            if header.ids is not None and header.ids != [item.get("id") for item in asked.items]:
                raise OutOfStep("VECTORS echoes other ids than those that were asked for")
            if size != (due := 4 * header.n * header.dims):
                raise OutOfStep(f"VECTORS has {size} bytes; {header.n} × {header.dims} f32 are {due}")
        elif size != 4 * len(asked.candidates):
            raise OutOfStep(f"SCORES has {size} bytes; {len(asked.candidates)} f32 were asked for")


class WorkerEnd(_End):
    """The worker's end: says HELLO, answers requests."""

    def __init__(self, hello: h.Hello) -> None:
        super().__init__(hello.max_frame, untyped=h.HelloAck.TYPE)
        self._hello = hello
        self._lacks = frozenset(h.ADDED_TYPES) - frozenset(hello.types)

    def greeting(self) -> Pieces:
        """HELLO, the first word."""
        return self._out(self._hello, None, _FROM_WORKER)

    def packets(self) -> Iterator[Packet | Pieces]:
        """Packets to work on, and answers (lists of pieces) to send at once, in their order.

        Raises PeerError. A CANCEL is given out in every state: a stale one is the engine's to ignore.
        """
        try:
            while (found := self._next()) is not None:
                yield self._taken(found)
        except PeerError as error:
            raise self._fail(error) from None

    def send(self, header: Any, data: bytes | memoryview | None = None) -> Pieces:
        """What goes out; an ERR's message is cut to what fits. Raises LocalError where it may not."""
        if isinstance(header, h.Err):
            header = _fitting(header, self.max_frame)
        return self._out(header, data, _FROM_WORKER)

    def _taken(self, found: Packet | Refused) -> Packet | Pieces:
        if isinstance(found, Refused):
            error = found.error
            if error.type in self._lacks:
                return self._lacking(error.type, error.req_id)
            return self._answer_at_once(error.type, error.req_id, error.code, str(error))
        header = found.header
        if isinstance(header, h.Unknown):
            return self._lacking(header.type, header.req_id)
        if type(header) not in _FROM_HOST:
            raise OutOfStep(f"{header.TYPE} is not for a host to send")
        if header.TYPE in self._lacks:
            return self._lacking(header.TYPE, getattr(header, "req_id", None))
        after = self.link.after(header)
        if isinstance(header, h.HelloAck):
            if header.v != h.VERSION:
                raise VersionRefused(header.v, h.VERSION)
            if not header.accept:
                raise NotAccepted("the host does not take this worker")
            self._agree(header.max_frame)
        self.link = after
        return found

    def _lacking(self, kind: str, req_id: str | None) -> Pieces:
        return self._answer_at_once(kind, req_id, "unknown_type", f"this worker does not know {kind!r:.100}")

    def _answer_at_once(self, kind: str, req_id: str | None, code: str, msg: str) -> Pieces:
        """An ERR that no engine has to see. It may not be taken for the answer to what is in flight."""
        request, state = self.link.request, self.link.state
        beside = kind == h.Cancel.TYPE or kind not in h.KNOWN
        mistaken = request is not None and (req_id is None or req_id == request[1])
        idle = state is State.IDLE and kind not in (h.HelloAck.TYPE, h.Shutdown.TYPE)
        busy = beside and not mistaken and (state is State.BUSY or (state is State.DRAINING and request))
        if not idle and not busy:
            raise OutOfStep(f"{kind!r:.100} may not come while the link is {state}, and is refused: {msg}")
        return pieces(
            _fitting(h.Err(code=code, msg=msg, req_id=req_id), self.max_frame), None, self.max_frame
        )


def _fitting(error: h.Err, limit: int) -> h.Err:
    return error if len(h.write(error)) <= limit else replace(error, msg=error.msg[:_SHORT])
