"""Many nodes on one machine: Builders that share a process and an event loop, each with all that makes a
node: a state folder, streams, a claim, a keeper of its own. And many dashboards: connections that only count.

    async with simulated(tmp_path, nats.url, ["n0", "n1"]) as nodes, dashboards(nats.url, subjects) as boards:

Nothing of a Builder is replaced: it is `service.run`, as `python -m bakemesh.builder` runs it, but for
signals and settings. Left out: a process for each, which is what `builder` is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakemesh.builder.service import run
from bakemesh.builder.settings import BuilderSettings
from bakemesh.bus.errors import BusError
from bakemesh.bus.settings import BusSettings
from bakemesh.protocol.rights import builder_name

log = logging.getLogger(__name__)
READY_S, AGAIN_S = 240.0, 0.2
_HELLO = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "tests"}


@dataclass
class SimulatedNode:
    """One Builder. `ready` is set once it bakes. Where the bus fails it, it is run again, as `up` does."""

    node_id: str
    state: Path
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    end: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    runs: int = 0

    def start(self, url: str, *, nodes_expected: int, **more: Any) -> None:
        """Begins; not yet ready."""
        bus = BusSettings(
            servers=(url,),
            name="builder",
            node_id=self.node_id,
            identity=builder_name(self.node_id),
            connect_timeout_s=30,
        )
        settings = BuilderSettings(
            bus=bus,
            node=self.node_id,
            node_id=self.node_id,
            state=self.state,
            nodes_expected=nodes_expected,
            **more,
        )
        self.task = asyncio.create_task(self._kept(settings), name=self.node_id)

    async def _kept(self, settings: BuilderSettings) -> None:
        while not self.end.is_set():
            self.runs += 1
            try:
                await run(settings, self.end, ready=self.ready.set)
            except BusError as error:
                log.warning("node %s is run again: %s", self.node_id, error)
                await asyncio.sleep(AGAIN_S)

    async def baking(self) -> None:
        """Returns when it is ready; raises what it failed with."""
        assert self.task is not None
        waiting = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
            if self.task.done():
                await self.task
                raise AssertionError(f"node {self.node_id} ended before it was ready")
        finally:
            waiting.cancel()

    async def stop(self) -> None:
        """Ends it, as TERM would."""
        self.end.set()
        if self.task is not None:
            await self.task


@asynccontextmanager
async def simulated(
    folder: Path,
    url: str,
    node_ids: Sequence[str],
    *,
    nodes_expected: int | None = None,
    ready: Callable[[str], None] = lambda node_id: None,
    **more: Any,
) -> AsyncIterator[dict[str, SimulatedNode]]:
    """These nodes, ready, in this process. `ready` hears of each; `more` are fields of BuilderSettings."""
    nodes = {node_id: SimulatedNode(node_id, folder / f"state-{node_id}") for node_id in node_ids}

    async def tell(node: SimulatedNode) -> None:
        await node.baking()
        ready(node.node_id)

    try:
        for node in nodes.values():
            node.start(url, nodes_expected=nodes_expected or len(nodes), **more)
        async with asyncio.timeout(READY_S):
            await asyncio.gather(*(tell(node) for node in nodes.values()))
        yield nodes
    finally:
        ends = await asyncio.gather(*(node.stop() for node in nodes.values()), return_exceptions=True)
        failures = [end for end in ends if isinstance(end, BaseException)]
        if failures:
            raise failures[0]


class Dashboard(asyncio.Protocol):
    """A connection with one subscription. `count` messages came; `digest` is over their bodies, in order."""

    def __init__(self, subject: str) -> None:
        self.subject, self.count, self.digest, self.lost = subject, 0, 0, False
        self.subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Says hello and subscribes."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(f"CONNECT {json.dumps(_HELLO)}\r\nSUB {self.subject} 1\r\nPING\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Counts what is whole."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n")) >= 0:
            words = self._buffer[:end].split()
            if words[0] in (b"MSG", b"HMSG"):
                size = int(words[-1])
                head = int(words[-2]) if words[0] == b"HMSG" else 0
                begin, end = end + 2, end + 2 + size
                if len(self._buffer) < end + 2:
                    return
                self.count += 1
                self.digest = zlib.crc32(self._buffer[begin + head : end], self.digest)
            elif words[0] == b"PING":
                self.transport.write(b"PONG\r\n")
            elif words[0] == b"PONG" and not self.subscribed.done():
                self.subscribed.set_result(None)
            elif words[0] == b"-ERR":
                raise AssertionError(self._buffer[:end])
            self._buffer = self._buffer[end + 2 :]

    def connection_lost(self, exc: Exception | None) -> None:
        """The server went, or cut it."""
        self.lost = True
        if not self.subscribed.done():
            self.subscribed.set_exception(exc or ConnectionError("closed before it was subscribed"))


def digest_of(bodies: Sequence[bytes]) -> int:
    """What a dashboard's digest is after these."""
    found = 0
    for body in bodies:
        found = zlib.crc32(body, found)
    return found


@asynccontextmanager
async def dashboards(url: str, subjects: Sequence[str]) -> AsyncIterator[list[Dashboard]]:
    """A connection for each subject, subscribed."""
    host, port = _address(url)
    loop, made = asyncio.get_running_loop(), []
    try:
        for subject in subjects:
            _, board = await loop.create_connection(lambda subject=subject: Dashboard(subject), host, port)
            made.append(board)
        await asyncio.gather(*(board.subscribed for board in made))
        yield made
    finally:
        for board in made:
            board.transport.abort()


@contextlib.contextmanager
def stuck_dashboard(url: str, subject: str, windows: int) -> Iterator[socket.socket]:
    """A reader that hangs: it subscribes so many times on one connection and reads nothing any more."""
    host, port = _address(url)
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.settimeout(10)
        link.connect((host, port))
        assert link.recv(4096).startswith(b"INFO ")
        wanted = "".join(f"SUB {subject} {number}\r\n" for number in range(1, windows + 1))
        link.sendall(f"CONNECT {json.dumps(_HELLO)}\r\n{wanted}".encode())
        yield link


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("nats://").rpartition(":")
    return host, int(port)
