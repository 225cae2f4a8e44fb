"""A server that answers with bytes that a test gives, whatever was asked, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bakemesh.dendrite import Target
from support.recorded import ALICE


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        """The first one of this name."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


Answer = bytes | Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawAxon:
    """`answer`: bytes, or what writes them. A connection is closed after an answer that ends in no length."""

    answer: Answer
    keep: bool = False
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    gone: int = 0  # connections that the client has left

    @property
    def target(self) -> Target:
        """Its address, and //Alice's hotkey."""
        return Target("127.0.0.1", self.port, ALICE.address)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        number = self.connections
        try:
            while True:
                asked = await _request(reader, number)
                self.asked.append(asked)
                if isinstance(self.answer, bytes):
                    writer.write(self.answer)
                    await writer.drain()
                else:
                    await self.answer(asked, writer)
                if not self.keep:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone += 1
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _request(reader: asyncio.StreamReader, connection: int) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rows = head[:-4].split("\r\n")
    headers = [(key, value) for key, _, value in (row.partition(": ") for row in rows)]
    length = next((int(value) for key, value in headers if key.lower() == "content-length"), 0)
    return Asked(line, headers, await reader.readexactly(length), connection)


@asynccontextmanager
async def raw_axon(answer: Answer, *, keep: bool = False) -> AsyncIterator[RawAxon]:
    """A running one."""
    axon = RawAxon(answer, keep)
    tasks: set[asyncio.Task[Any]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(axon.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    axon.port = server.sockets[0].getsockname()[1]
    try:
        yield axon
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def http(
    body: bytes,
    *headers: str,
    status: str = "200 OK",
    kind: str = "application/json",
    length: int | None = None,
) -> bytes:
    """An answer with these headers."""
    rows = [
        f"HTTP/1.1 {status}",
        f"content-type: {kind}",
        *headers,
        f"content-length: {len(body) if length is None else length}",
    ]
    return "\r\n".join(rows).encode() + b"\r\n\r\n" + body
