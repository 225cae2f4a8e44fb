"""An answer in parts: server-sent events, or in the sdk profile the raw chunks that the axon sent.

Guarantees: a part comes as soon as it is there; the deadline ends the stream, closing it (or leaving `async
with`) closes the connection, by which the axon knows; a stream that broke off is told from one that ended.
Left out: what the parts make together.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp

from bakemesh.dendrite import answering, failures
from bakemesh.dendrite.errors import CallFailed
from bakemesh.dendrite.reading import whole
from bakemesh.dendrite.target import Target
from bakemesh.protocol.axon import sse
from bakemesh.protocol.axon.errors import DeserializationFailed
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.streaming import StreamingSynapse
from bakemesh.protocol.axon.synapse import Synapse
from bakemesh.protocol.axon.terminal import TerminalInfo

FAILED = 500


@dataclass(frozen=True, slots=True)
class Opened:
    """A request whose answer has begun."""

    synapse: Synapse
    response: aiohttp.ClientResponse


Open = Callable[[AsyncExitStack], Awaitable[Opened]]  # what it takes is given back by closing the stack


class Stream(AsyncIterator[Any]):
    """The parts, as the class's `process_chunk` reads them: `async for part in stream`.

    Raises CallFailed where the axon refused or broke off, at the deadline too. `synapse` is what is known by
    then of both ends, and after the end how it ended.
    """

    def __init__(
        self,
        begin: Open,
        synapse: StreamingSynapse,
        target: Target,
        profile: Profile,
        timeout: float,
        largest: int,
    ) -> None:
        self.synapse: Synapse = synapse
        self._begin, self._cls, self._target, self._profile = begin, type(synapse), target, profile
        self._timeout, self._largest = timeout, largest
        self._stack = AsyncExitStack()
        self._response: aiohttp.ClientResponse | None = None
        self._begun_at = 0.0
        self._deadline: float | None = None
        self._ready: deque[Any] = deque()
        self._over = False
        self._failure: CallFailed | None = None
        self._events = sse.Decoder(largest)
        self._rest = b""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._ready:
            return self._ready.popleft()
        if not self._over:
            await self._advance()
            if self._ready:
                return self._ready.popleft()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Ends it; the connection is closed where the axon has more to say."""
        self._over, self._failure = True, None
        self._ready.clear()
        await self._stack.aclose()

    async def _advance(self) -> None:
        """Reads until a part is there or the stream is over."""
        try:
            if self._deadline is None:
                self._begun_at = time.perf_counter()
                self._deadline = asyncio.get_running_loop().time() + self._timeout
            async with asyncio.timeout_at(self._deadline):
                if self._response is None:
                    self._response = await self._head()
                while not (self._ready or self._over):
                    await (self._chunk() if self._profile is Profile.SDK else self._event())
        except CallFailed as error:
            self._fail(error)
        except DeserializationFailed as error:
            self._fail(CallFailed(failures.UNREADABLE, f"Failed to parse response: {error.reason}"))
        except failures.FOREIGN as error:
            self._fail(failures.failure(error, self._target, self._cls.route(), self._timeout))
        except BaseException:
            await self.aclose()
            raise
        if self._over:
            self.synapse.dendrite.process_time = time.perf_counter() - self._begun_at
            await self._stack.aclose()

    def _fail(self, failure: CallFailed) -> None:
        self._over, self._failure = True, failure
        answering.fail(self.synapse, failure)

    async def _head(self) -> aiohttp.ClientResponse:
        opened = await self._begin(self._stack)
        self.synapse, response = opened.synapse, opened.response
        status, headers = response.status, response.headers
        if status == answering.OK and not answering.is_json(headers.get("content-type", "")):
            answering.merge(self.synapse, self._profile, status, TerminalInfo(), headers)
            return response
        answering.fill(self.synapse, self._profile, status, headers, await whole(response, self._largest))
        if status != answering.OK:
            raise CallFailed(
                status, self.synapse.dendrite.status_message or f"The axon answered {status} and said no more"
            )
        raise CallFailed(failures.UNREADABLE, "The axon answered whole and not in parts; query it")

    async def _event(self) -> None:
        assert self._response is not None
        chunk = await self._response.content.readany()
        if not chunk:
            raise CallFailed(failures.BROKEN, f"Payload error: the stream ended without {sse.DONE}")
        for event in self._events.feed(chunk):
            if event.done:
                self._over = True
                return
            if event.name == sse.ERROR:
                raise _told(event.data)
            if event.name == "message":
                self._ready.append(self._item(event.data))

    async def _chunk(self) -> None:
        assert self._response is not None
        data, ended = await self._response.content.readchunk()
        self._rest += data
        if len(self._rest) > self._largest:
            raise DeserializationFailed(f"a chunk is larger than {self._largest} bytes")
        if not data and not ended:
            self._over = True
        elif self._response.headers.get("transfer-encoding") == "chunked" and not ended:
            return  # a part is what the axon sent at once, also where it comes in two pieces
        part = self._rest
        self._rest = b""
        if self._cls.Item is str and not self._over:
            part, self._rest = cut(part)
        if part:
            self._ready.append(self._item(part))

    def _item(self, data: bytes) -> Any:
        cls = self._cls
        assert issubclass(cls, StreamingSynapse)
        return cls.process_chunk(data)


def _told(data: bytes) -> CallFailed:
    """An error event: what it says, be it text or JSON with a status and a message."""
    text = data.decode("utf-8", "replace")[: answering.LONGEST_MESSAGE]
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return CallFailed(FAILED, text)
    status, message = found.get("status_code"), found.get("message")
    if not isinstance(status, int) or not 400 <= status < 600:
        status = FAILED
    if not isinstance(message, str):
        message = text
    return CallFailed(status, message[: answering.LONGEST_MESSAGE].encode("utf-8", "replace").decode())


def cut(data: bytes) -> tuple[bytes, bytes]:
    """UTF-8 text before and from a last character that is not complete; what is none is left as it is."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return (data[:-back], data[-back:]) if length > back else (data, b"")
    return data, b""
