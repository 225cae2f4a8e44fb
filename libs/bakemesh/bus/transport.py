"""How a connection reads and writes: as much at once as there is, and the first frame of a turn at once.

The client library reads 32 KiB at a time; a chunk of output then takes eight turns of the loop and eight
copies, and small messages are taken off in small heaps. And it hands each frame to a task that writes it a
turn of the loop later: good where many come together, a tenth of a millisecond lost where one comes alone.
Left out: everything else, which is the library's.
"""

from __future__ import annotations

import asyncio
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport

READ = 256 * 2**10


class WideTransport(TcpTransport):
    """The library's own, with larger reads; over TLS its buffer stays as the library makes it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._spoke = False  # in this turn of the loop

    def __bool__(self) -> bool:
        """True, connected or not: what is false, the client library replaces by its own."""
        return True

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connects. Raises OSError, TimeoutError."""
        await super().connect(uri, max(buffer_size, READ), connect_timeout)

    async def read(self, buffer_size: int) -> bytes:
        """What has come, up to READ bytes; none at the end."""
        assert self._io_reader is not None, "connect comes first"
        return await self._io_reader.read(max(buffer_size, READ))

    def takes(self, frame: bytes) -> bool:
        """Writes a frame now, where it is the first in this turn of the loop and nothing waits to go out
        before it; whether it did. Further ones of a turn are better sent together, by the library.
        """
        if self._spoke or self._io_writer is None:
            return False
        transport = self._io_writer.transport
        if transport.is_closing() or transport.get_write_buffer_size():
            return False
        self._spoke = True
        transport.write(frame)
        asyncio.get_running_loop().call_soon(self._turned)
        return True

    def _turned(self) -> None:
        self._spoke = False
