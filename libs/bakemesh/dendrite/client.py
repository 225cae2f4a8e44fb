"""The dendrite: signs requests, keeps connections, gives the answers.

Guarantees: a call is over at its timeout, whose clock runs from the call on, so waiting for a connection
counts; the caller's synapse is not changed; redirects are not followed, no proxy is taken from the
environment, no cookie kept; nothing grows with the number of calls. Cancelling the caller's task closes the
connection.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

import aiohttp
from aiohttp.payload import BytesPayload

from bakemesh.dendrite import answering, building, failures
from bakemesh.dendrite.errors import CallFailed
from bakemesh.dendrite.lanes import Lanes
from bakemesh.dendrite.nonces import Nonces
from bakemesh.dendrite.reading import whole
from bakemesh.dendrite.streaming import Opened, Stream
from bakemesh.dendrite.target import Target
from bakemesh.protocol.axon.profiles import Profile
from bakemesh.protocol.axon.signatures import Hotkey
from bakemesh.protocol.axon.streaming import StreamingSynapse
from bakemesh.protocol.axon.synapse import TIMEOUT_S, Synapse
from bakemesh.protocol.axon.terminal import TerminalInfo

CONNECTIONS = 1024
CONNECTIONS_AN_AXON = 64
LARGEST_ANSWER = 64 << 20
MOST_AXONS = 4096  # whose lanes are remembered
_KEPT_S = 4.0  # uvicorn closes an idle connection after 5 s: be first, so that no request meets its end
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)

S = TypeVar("S", bound=Synapse)


class Dendrite:
    """A client with the key `hotkey`. `tls`: for axons whose certificate is not signed by a public authority.
    `now_ns`: the time since the epoch.

    `async with Dendrite(hotkey) as dendrite`, or `aclose` at the end.
    """

    def __init__(
        self,
        hotkey: Hotkey,
        *,
        profile: Profile = Profile.SYNAPSE,
        connections: int = CONNECTIONS,
        connections_an_axon: int = CONNECTIONS_AN_AXON,
        largest_answer: int = LARGEST_ANSWER,
        tls: ssl.SSLContext | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.hotkey, self.profile = hotkey, profile
        self._connections, self._an_axon, self._largest = connections, connections_an_axon, largest_answer
        self._tls = tls
        self._nonces = Nonces(now_ns)
        self._lanes: dict[tuple[str, int], Lanes] = {}
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections; what is under way fails. May be called again."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @overload
    async def query(
        self,
        axons: Target,
        synapse: S,
        timeout: float = ...,
        deserialize: Literal[False] = ...,
        retries: int = ...,
    ) -> S: ...
    @overload
    async def query(
        self,
        axons: Sequence[Target],
        synapse: S,
        timeout: float = ...,
        deserialize: Literal[False] = ...,
        retries: int = ...,
    ) -> list[S]: ...
    @overload
    async def query(
        self,
        axons: Target | Sequence[Target],
        synapse: Synapse,
        timeout: float = ...,
        deserialize: bool = ...,
        retries: int = ...,
    ) -> Any: ...
    async def query(
        self,
        axons: Target | Sequence[Target],
        synapse: Synapse,
        timeout: float = TIMEOUT_S,
        deserialize: bool = False,
        retries: int = 0,
    ) -> Any:
        """The answer of an axon, or those of many in their order, asked at the same time.

        An answer is a copy of the synapse with what the axon filled in, and says how it ended. With
        `deserialize` it is what the class's own `deserialize()` gives, where a class has one; else its
        `Output`, None where there was no success; else the synapse. `timeout`: seconds a try; `retries`: how
        often an axon whose time was over is asked again. Raises TargetRefused, ValueError; nothing for what
        an axon does.
        """
        self._check(timeout)
        if retries < 0:
            raise ValueError(f"retries is {retries}; expected 0 or more")
        for each in (axons,) if isinstance(axons, Target) else axons:
            building.check(each, self.profile)
        if isinstance(axons, Target):
            return await self._answer(axons, synapse, timeout, deserialize, retries)
        return await asyncio.gather(
            *(self._answer(axon, synapse, timeout, deserialize, retries) for axon in axons)
        )

    def stream(self, axon: Target, synapse: StreamingSynapse, timeout: float = TIMEOUT_S) -> Stream:
        """The answer of an axon part by part; `timeout` is that of the whole. See Stream."""
        self._check(timeout)
        building.check(axon, self.profile)

        async def begin(stack: AsyncExitStack) -> Opened:
            return await stack.enter_async_context(self._sent(axon, synapse, timeout))

        known = self._unsent(axon, synapse, timeout)
        return Stream(begin, known, axon, self.profile, timeout, self._largest)

    async def _answer(
        self, axon: Target, synapse: Synapse, timeout: float, deserialize: bool, retries: int
    ) -> Any:
        found, output = await self._call(axon, synapse, timeout)
        while retries > 0 and found.is_timeout:
            retries -= 1
            found, output = await self._call(axon, synapse, timeout)
        if not deserialize:
            return found
        own = getattr(found, "deserialize", None)
        if callable(own):
            return own()
        return found if found.Output is None else output if found.is_success else None

    async def _call(self, axon: Target, synapse: Synapse, timeout: float) -> tuple[Synapse, Any]:
        begun = time.perf_counter()
        found: Synapse | None = None
        output = None
        try:
            async with asyncio.timeout(timeout), self._sent(axon, synapse, timeout) as opened:
                found, response = opened.synapse, opened.response
                body = await whole(response, self._largest)
                output = answering.fill(found, self.profile, response.status, response.headers, body)
        except CallFailed as error:
            if found is None:
                found = self._unsent(axon, synapse, timeout)
            answering.fail(found, error)
        except failures.FOREIGN as error:
            if found is None:
                found = self._unsent(axon, synapse, timeout)
            answering.fail(found, failures.failure(error, axon, type(synapse).route(), timeout))
        found.dendrite.process_time = time.perf_counter() - begun
        return found, output

    @asynccontextmanager
    async def _sent(self, axon: Target, synapse: Synapse, timeout: float) -> AsyncIterator[Opened]:
        async with AsyncExitStack() as stack:
            if self.profile is Profile.SDK:
                name = await stack.enter_async_context(self._lane(axon).one())
            else:
                name = str(uuid.uuid4())
            request = building.build(
                synapse,
                axon,
                self.hotkey,
                self.profile,
                timeout=timeout,
                nonce=self._nonces.next(),
                uuid=name,
            )
            response = await stack.enter_async_context(
                self._open().post(
                    axon.url(type(synapse).route()),
                    headers=request.headers,
                    # A payload, not bytes: its content type goes last, as the real dendrite's does.
                    data=BytesPayload(request.body, content_type="application/json"),
                    allow_redirects=False,
                )
            )
            yield Opened(request.synapse, response)

    def _lane(self, axon: Target) -> Lanes:
        key = (axon.host, axon.port)
        found = self._lanes.pop(key, None) or Lanes(self._an_axon)
        self._lanes[key] = found
        if len(self._lanes) > MOST_AXONS:
            del self._lanes[next(iter(self._lanes))]  # the one not used for longest
        return found

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("the dendrite is closed")
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections,
                limit_per_host=self._an_axon,
                keepalive_timeout=_KEPT_S,
                ttl_dns_cache=60,
                ssl=self._tls if self._tls is not None else True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=_NO_TIMEOUT
            )
        return self._session

    def _check(self, timeout: float) -> None:
        if not (math.isfinite(timeout) and timeout > 0):
            raise ValueError(f"timeout is {timeout!r}; expected seconds above 0")

    def _unsent(self, axon: Target, synapse: S, timeout: float) -> S:
        found = synapse.model_copy()
        found.set_timeout(timeout)
        found.set_axon(TerminalInfo(ip=axon.host, port=axon.port, hotkey=axon.hotkey or None))
        found.set_dendrite(TerminalInfo(hotkey=self.hotkey.address))
        return found
