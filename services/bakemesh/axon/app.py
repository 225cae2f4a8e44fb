"""The gateway as an ASGI application: `build(axon, state)`.

    POST /<Synapse>                     the steps of `middleware`, the handler, an answer or a stream
    /healthz  /readyz  /metrics         always answered, also when the gateway is full
    what `extra` routes                 theirs; everything else is 404 and names what there is

Guarantees: whatever happens, a request is answered once, with a verdict that is counted; the deadline
(`min(timeout header, limit of the route)`) holds from the headers to the last byte; a client that is gone
ends its handler (where the server cancels: `connection` does). No task a request, no copy of a body.
Left out: HTTP itself (`serving`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from starlette.routing import BaseRoute, Router

from bakemesh.axon.answering import Answer, failure, stream_headers, success
from bakemesh.axon.calling import call
from bakemesh.axon.exchange import Exchange, Receive, Scope, Send, too_large
from bakemesh.axon.gateway import GatewayState
from bakemesh.axon.metrics import CONTENT_TYPE, GONE, NO_ROUTE
from bakemesh.axon.middleware.blacklist import Blacklist
from bakemesh.axon.middleware.body_hash import BodyHash, watched_of
from bakemesh.axon.middleware.deny_list import DenyAddresses
from bakemesh.axon.middleware.limits import Limits
from bakemesh.axon.middleware.priority import Priority
from bakemesh.axon.middleware.replay import OnlyOnce
from bakemesh.axon.middleware.verification import Verification
from bakemesh.axon.refused import ClientGone, Refused
from bakemesh.axon.streaming import ABORT, Stream, cut
from bakemesh.edge.axon import Axon, Route
from bakemesh.edge.errors import HandlerRefused
from bakemesh.protocol.axon.errors import (
    DeserializationFailed,
    InvalidTensor,
    NotVerified,
    SynapseError,
)
from bakemesh.protocol.axon.headers import normal
from bakemesh.protocol.axon.verdicts import Verdict

log = logging.getLogger(__name__)
Step = Callable[[Exchange], Awaitable[None] | None]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
RETRY_S = 1.0


def build(axon: Axon, state: GatewayState, extra: Sequence[BaseRoute] = ()) -> App:
    """The application. Raises TypeError where a class of the axon cannot be served."""
    return _Gateway(axon, state, extra)


class _Gateway:
    def __init__(self, axon: Axon, state: GatewayState, extra: Sequence[BaseRoute]) -> None:
        settings = state.settings
        self._state = state
        self._own = state.hotkey.address
        self._limits = settings.limits
        self._routes = {f"/{name}": (route, watched_of(route)) for name, route in axon.routes.items()}
        self._names = list(axon.routes)
        self._counting = Limits(state.clients)
        verification = Verification(
            self._own,
            settings.window,
            state.denied,
            state.now_ns,
            self._limits.body_bytes,
            self._limits.unverified,
            state.executor,
        )
        self._steps: tuple[Step, ...] = (
            DenyAddresses(state.denied),
            verification,
            OnlyOnce(state.replay, settings.window, state.now_ns),
            self._counting,
            Blacklist(state.executor),
            Priority(state.executor),
            BodyHash(self._limits.body_bytes),
        )
        self._extra = Router(list(extra), default=self._unknown, redirect_slashes=False)
        self._always: dict[str, Callable[[], Answer]] = {
            "/healthz": lambda: _plain(200, b'{"status":"alive"}'),
            "/readyz": self._ready,
            "/metrics": self._metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's request, or the server's start and end."""
        if scope["type"] != "http":
            await _no_http(scope, receive, send)
            return
        path = scope["path"]
        always = self._always.get(path)
        if always is not None:
            await _send(send, always())
            return
        gate = self._state.gate
        if gate.full:
            told = f"the gateway has {gate.running} requests, the most it takes at once"
            answer = failure(Verdict.OVERLOADED, told, None, 0.0, retry_after_s=RETRY_S)
            self._state.metrics.ended(NO_ROUTE, Verdict.OVERLOADED, "", 0.0)
            await _send(send, answer)
            return
        gate.running += 1
        try:
            found = self._routes.get(path)
            if found is None:
                await self._other(scope, receive, send)
            else:
                await self._synapse(scope, receive, send, *found)
        finally:
            gate.running -= 1

    # -- a synapse

    async def _synapse(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        route: Route,
        watched: tuple[tuple[str, Any], ...],
    ) -> None:
        began = time.monotonic()
        exchange: Exchange | None = None
        stream: Stream | None = None
        timing: asyncio.Timeout | None = None
        verdict: str = GONE
        answer: Answer | None = None
        try:
            exchange = Exchange(scope, receive, route, watched, normal(scope["headers"]), began)
            if scope["method"] != "POST":
                raise Refused(Verdict.WRONG_METHOD, "Method Not Allowed", unsigned=True)
            exchange.time(self._limits.request_s if route.limit_s is None else route.limit_s)
            async with asyncio.timeout_at(exchange.deadline) as timing:
                for step in self._steps:
                    waiting = step(exchange)
                    if waiting is not None:
                        await waiting
                assert exchange.synapse is not None
                result = await call(route.forward, self._state.executor, exchange.synapse, exchange)
                if isinstance(result, AsyncIterator):
                    stream = Stream(exchange, result, send)
                    await stream.run(stream_headers(exchange, self._own, self._now()))
                else:
                    answer = success(exchange, result, self._own, self._now())
            verdict = Verdict.OK
        except ClientGone:
            pass
        except asyncio.CancelledError:  # the client is gone, or the server's time to end is over
            if ABORT not in scope.get("extensions", ()):
                raise
        except Exception as error:  # noqa: BLE001 - the border: each of them is an answer
            late = isinstance(error, TimeoutError) and timing is not None and timing.expired()
            ended, reason, retry, signed = self._told(error, late, exchange)
            verdict = ended
            if stream is not None and stream.begun:
                await stream.failed(ended, reason)
            else:
                answer = self._failure(ended, reason, exchange, retry, signed)
        finally:
            if exchange is not None:
                self._counting.left(exchange)
            self._ended(route.name, verdict, exchange, stream, began)
        if answer is not None:
            await _send(send, answer)

    def _told(
        self, error: Exception, late: bool, exchange: Exchange | None
    ) -> tuple[Verdict, str, float | None, bool]:
        """Verdict, reason, when to come again, and whether the answer is signed."""
        match error:
            case Refused():
                return error.verdict, error.reason, error.retry_after_s, not error.unsigned
            case HandlerRefused():
                return error.verdict, error.reason, error.retry_after_s, True
            case NotVerified():
                return error.verdict, f"Not Verified with error: {error.reason}", None, True
            case InvalidTensor():
                return Verdict.BAD_TENSOR, str(error), None, True
            case DeserializationFailed():
                return Verdict.BAD_BODY, str(error), None, True
            case SynapseError():
                return Verdict.MALFORMED, str(error), None, True
            case TimeoutError() if late:
                seconds = exchange.deadline - exchange.began if exchange is not None else 0.0
                return Verdict.TIMED_OUT, f"Timeout after {seconds:g} seconds", None, True
            case _:
                number = uuid.uuid4()
                name = exchange.route.name if exchange is not None else NO_ROUTE
                log.error("%s failed, #%s", name, number, exc_info=error)
                return Verdict.FAILED, f"Internal Server Error #{number}", None, True

    def _failure(
        self, verdict: Verdict, reason: str, exchange: Exchange | None, retry: float | None, signed: bool
    ) -> Answer:
        return failure(
            verdict,
            reason,
            exchange,
            self._now(),
            signer=self._state.hotkey if signed else None,
            nonce=self._state.now_ns(),
            uuid=self._state.uuid,
            retry_after_s=retry,
        )

    def _ended(
        self, route: str, verdict: str, exchange: Exchange | None, stream: Stream | None, began: float
    ) -> None:
        profile = exchange.profile if exchange is not None else None
        self._state.metrics.ended(route, verdict, profile or "", self._now() - began)
        if stream is not None:
            self._state.metrics.parts(route, stream.sent)

    def _now(self) -> float:
        return time.monotonic()

    # -- everything else

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A route of `extra`, whose body is held to the same limit; or none."""
        started = False

        async def sending(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            normal(scope["headers"])
            await self._extra(scope, self._limited(receive), sending)
        except asyncio.CancelledError:
            if ABORT not in scope.get("extensions", ()):
                raise
        except Exception as error:  # noqa: BLE001 - the border
            verdict, reason, retry, _ = self._told(error, False, None)
            if started:
                cut(scope)
                return
            await _send(send, failure(verdict, reason, None, 0.0, retry_after_s=retry))

    def _limited(self, receive: Receive) -> Receive:
        limit, size = self._limits.body_bytes, 0

        async def limited() -> Any:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                raise too_large(limit)
            return message

        return limited

    async def _unknown(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._now()
        name = scope["path"].strip("/").split("/")[0][:80]
        told = f"Synapse name '{name}' not found. Available synapses {self._names}"
        self._state.metrics.ended(NO_ROUTE, Verdict.UNKNOWN_ROUTE, "", self._now() - began)
        await _send(send, failure(Verdict.UNKNOWN_ROUTE, told, None, 0.0))

    # -- who looks after it

    def _ready(self) -> Answer:
        missing = self._state.unready()
        body = json.dumps({"status": "not ready", "missing": missing} if missing else {"status": "ready"})
        return _plain(503 if missing else 200, body.encode())

    def _metrics(self) -> Answer:
        return _plain(200, self._state.metrics.text(), CONTENT_TYPE.encode())


def _plain(status: int, body: bytes, kind: bytes = b"application/json") -> Answer:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    return Answer(status, headers, body)


async def _send(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


async def _no_http(scope: Scope, receive: Receive, send: Send) -> None:
    """A server's start and end; a web socket is closed."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1003})
        return
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})
