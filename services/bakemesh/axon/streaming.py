"""A stream as it goes out: server-sent events, or raw parts for the sdk profile.

    synapse, btauth   data: part … data: [DONE]         what goes wrong on the way: event: error, and the end
    sdk               the parts' own bytes               what goes wrong: the connection is cut, so that the
                                                         client does not take half of it for the whole

The status goes out with the first part, so what fails before that is an ordinary error. Guarantees: one part
at a time is held; the next one is asked for when the last is written; whatever ends the stream, the handler's
generator is closed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from bakemesh.axon.answering import LONGEST_MESSAGE, Headers
from bakemesh.axon.calling import contained
from bakemesh.axon.exchange import Exchange, Scope, Send
from bakemesh.edge.errors import HandlerFailed
from bakemesh.protocol.axon import sse
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.streaming import StreamingSynapse
from bakemesh.protocol.axon.verdicts import HTTP_STATUS, Verdict

log = logging.getLogger(__name__)
ABORT = "bakemesh.abort"  # an extension of the scope: cuts the connection
_CLOSE_S = 5.0  # for a generator to end
_TELL_S = 1.0  # for the last event, to a client that may not read


class Stream:
    """One stream. `first` is awaited before anything is sent."""

    def __init__(self, exchange: Exchange, parts: AsyncIterator[Any], send: Send) -> None:
        kind = exchange.route.synapse
        if not issubclass(kind, StreamingSynapse):
            raise HandlerFailed(f"it returned a stream, but {kind.__name__} is no StreamingSynapse")
        self._exchange, self._parts, self._send = exchange, parts, send
        self._item: Any = kind.Item
        self._raw = exchange.profile is Profile.SDK
        self._begun = False
        self.sent = 0

    @property
    def begun(self) -> bool:
        """Whether the status is out."""
        return self._begun

    async def run(self, headers: Headers) -> None:
        """Sends all of it. Raises what the handler raises, HandlerFailed for a part that is none."""
        try:
            part = await self._next()
            data = self._encoded(part) if part is not _END else b""
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self._begun = True
            while part is not _END:
                if data:
                    await self._send({"type": "http.response.body", "body": data, "more_body": True})
                self.sent += 1
                part = await self._next()
                data = self._encoded(part) if part is not _END else b""
            last = b"" if self._raw else sse.DONE_EVENT
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        finally:
            await self.close()

    async def failed(self, verdict: Verdict, reason: str) -> None:
        """Says on the way what went wrong, and ends."""
        if self._raw:
            self.abort()
            return
        told = json.dumps({"message": reason[:LONGEST_MESSAGE], "status_code": HTTP_STATUS[verdict]})
        body = sse.encode(told, sse.ERROR)
        try:
            async with asyncio.timeout(_TELL_S):
                await self._send({"type": "http.response.body", "body": body, "more_body": False})
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Cuts the connection."""
        cut(self._exchange.scope)

    async def close(self) -> None:
        """Closes the handler's generator, whatever it does then. Idempotent."""
        close = getattr(self._parts, "aclose", None)
        if close is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await close()
        except Exception:
            log.exception("the generator of %s failed when it was closed", self._exchange.route.name)

    async def _next(self) -> Any:
        with contained(self._exchange.route.forward):
            return await anext(self._parts, _END)

    def _encoded(self, part: Any) -> bytes:
        if isinstance(part, str):
            return part.encode("utf-8", "replace") if self._raw else sse.encode(part)
        if self._item is str:
            raise HandlerFailed(f"it yielded {part!r:.80}; expected a str")
        data: bytes = _adapter(self._item).dump_json(part, warnings="error")
        return data if self._raw else sse.encode(data.decode())


def cut(scope: Scope) -> None:
    """Cuts the connection of a request, where the server lets us."""
    extension = scope.get("extensions", {}).get(ABORT)
    if extension is not None:
        extension["cut"]()


_END: Any = object()


@lru_cache(maxsize=1024)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
