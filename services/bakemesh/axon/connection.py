"""uvicorn's connection, with what it lacks: time limits for receiving, and limits on what is received.

    connected, or idle and the first byte of a request came ─→ headers within `header_s`, else 408
    headers complete                                        ─→ body within `body_s`, else 408
    answered before the body was whole                      ─→ the rest within `linger_s`, else closed
    a peer that does not read what is sent                  ─→ `stall_s`, then cut

Guarantees: a header block above its limit is 431, whatever its form: one endless line, many short ones;
trailers have the same limit. They never become headers, nor a body the next request. When the client is gone,
the task of its request is cancelled. `scope` has the extension `bakemesh.abort`: it cuts the connection. More
connections than the limit: 503 at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from bakemesh.axon.streaming import ABORT

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

_WORDS = {
    400: b"the request is not HTTP/1.1 as we read it",
    408: b"the request did not come in time",
    431: b"the header block is too large",
    503: b"the gateway has too many connections",
}
_RETRY = b"retry-after: 1\r\n"


@dataclass(frozen=True, slots=True)
class Receiving:
    """Limits of one connection; times in seconds, sizes in bytes."""

    header_bytes: int
    headers: int
    header_s: float
    body_s: float
    connections: int
    linger_s: float = 2.0
    stall_s: float = 30.0


class Connection(HttpToolsProtocol):
    """One connection. `limits` is that of the class: `limited` makes one for a server."""

    limits: ClassVar[Receiving]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._timed = ""  # what the timer is for
        self._stalled: asyncio.TimerHandle | None = None
        self._head = False  # a header block has begun and is not complete
        self._body = False  # headers are complete, the body is not
        self._size = 0  # of the header block, as far as it is read
        self._idle = 0  # bytes that came within a body and were none of it
        self._unread = 0  # bytes that came since it began, besides the first piece
        self._refused = 400
        self._deaf = False  # it was refused: what still comes is thrown away
        self._running: RequestResponseCycle | None = None
        self._task: asyncio.Task[None] | None = None

    # -- the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503)
        else:
            self._arm("head", self.limits.header_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends what runs for this client."""
        self._disarm()
        self.resume_writing()
        self.pipeline.clear()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._end_running()

    def data_received(self, data: bytes) -> None:
        """Counts, reads, and sets the time for what comes next."""
        if self._deaf or self.transport.is_closing():
            return
        was = self._head
        self._idle += len(data)
        super().data_received(data)
        if self._deaf or self.transport.is_closing():
            return
        if self._head:
            self._unread = self._unread + len(data) if was else 0
            if self._unread > self.limits.header_bytes:
                self._refuse(431)
            else:
                self._arm("head", self.limits.header_s)
        elif self._body:
            if self._idle > self.limits.header_bytes:  # trailers, or what is told of a chunk
                self._refuse_within()
                return
            self._arm("body", self.limits.body_s)
            if not self.cycle.keep_alive:
                self.cycle.transport = _Lingering(self)  # type: ignore[assignment]
        elif self.cycle is None or (self.cycle.response_complete and not self.timeout_keep_alive_task):
            self._arm("head", self.limits.header_s)  # bytes between requests are no reason to wait longer
        else:
            self._disarm()

    def pause_writing(self) -> None:
        """The peer does not read as fast as we write."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self.flow is not None:
            super().resume_writing()

    # -- the parser

    def on_message_begin(self) -> None:
        """A header block begins."""
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: {"cut": self._cut}}
        self._head, self._body, self._size = True, False, 0

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; a trailer is passed over."""
        if not self._head:
            return
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)
        if len(self.headers) > self.limits.headers:
            self._refused = 431
            raise ValueError("too many headers")

    def on_headers_complete(self) -> None:
        """The request begins. One that asks for another protocol ends here for the parser, so its body would
        be read as the next request: with a body it is refused.
        """
        if self.parser.should_upgrade() and self._announced(b"transfer-encoding", b"content-length"):
            raise ValueError("another protocol is asked for, with a body")
        if self.parser.get_http_version() == "1.0" and self._announced(b"transfer-encoding"):
            raise ValueError("HTTP/1.0 has no transfer-encoding: others see no body there")
        self._head, self._body, self._idle = False, True, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._idle = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._body = False
        super().on_message_complete()

    def _announced(self, *by: bytes) -> bool:
        """Whether one of these headers says that a body follows."""
        return any(
            name in by and (name != b"content-length" or value.strip(b" \t0")) for name, value in self.headers
        )

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self.limits.header_bytes:
            self._refused = 431
            raise ValueError("the header block is too large")

    # -- answers

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self._running, self._task = cycle, task

    def on_response_complete(self) -> None:
        """Waits for the next request; or for the rest of this one, which nobody reads."""
        super().on_response_complete()
        if self._body and self.cycle.response_complete and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._arm("rest", self.limits.linger_s)

    def send_400_response(self, msg: str) -> None:
        """What the parser refused."""
        self._refuse(self._refused)

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for long enough. Who did not read its answer yet does not get it any more."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _refuse(self, status: int) -> None:
        """Says why, where that cannot be taken for the answer of another request, and closes: what the client
        has sent is read for a moment, so that it can read why.
        """
        running = self._running
        if running is not None and not running.response_complete:
            if running.response_started or running is not self.cycle or self._head:
                self.transport.abort()
                return
            self._end_running()
        body = b'{"message":"%b"}' % _WORDS[status]
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
            + (_RETRY if status == 503 else b"")
            + b"connection: close\r\n\r\n"
            + body
        )
        self.linger()

    def _refuse_within(self) -> None:
        """As `_refuse`, where a body is not whole: its request may be answered already."""
        if self.cycle.response_complete:
            self.transport.abort()
        else:
            self._refuse(431)

    def linger(self) -> None:
        """Closes, once the client has had a moment to read: what it still sends would make the system throw
        away what we said.
        """
        if self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self._deaf = True
            self.transport.write_eof()
            self.flow.resume_reading()
            self._arm("rest", self.limits.linger_s)
        else:
            self._deaf = True
            self.transport.close()

    @property
    def unread(self) -> bool:
        """Whether a body is not whole yet."""
        return self._body

    def _end_running(self) -> None:
        """Ends the request that runs: nobody is there for its answer."""
        running, task = self._running, self._task
        if running is None or task is None or running.response_complete:
            return
        running.disconnected = True  # it must not write any more
        running.message_event.set()
        task.cancel("the client is gone")

    def _cut(self) -> None:
        if self._running is not None:
            self._running.disconnected = True
        self.transport.abort()

    def _unsupported_upgrade_warning(self) -> None:
        """A request for another protocol is answered as the plain request that it also is."""

    # -- time

    def _arm(self, what: str, seconds: float) -> None:
        if self._timer is not None:
            if self._timed == what:  # the limit is for the whole, not for each piece
                return
            self._timer.cancel()
        self._timed = what
        self._timer = self.loop.call_later(seconds, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timed = None, ""

    def _late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:  # we are slow ourselves: it is not read until what is before it is answered
            self._arm(self._timed, self.limits.body_s)
        elif self._timed == "rest":
            self.transport.abort()
        else:
            self._refuse(408)


class _Lingering:
    """The transport of a request whose client wants it closed, while its body is not whole."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection.transport, name)

    def close(self) -> None:
        """Called behind the answer."""
        if self._connection.unread:
            self._connection.linger()
        else:
            self._connection.transport.close()


def limited(limits: Receiving) -> type[Connection]:
    """The class of a server's connections."""
    return type("LimitedConnection", (Connection,), {"limits": limits})
