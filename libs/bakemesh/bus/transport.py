"""How a connection reads: as much at once as there is.

The client library reads 32 KiB at a time; a chunk of output then takes eight turns of the loop and eight
copies, and small messages are taken off in small heaps. Left out: everything else, which is the library's.
"""

from __future__ import annotations

from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport

READ = 256 * 2**10


class WideTransport(TcpTransport):
    """The library's own, with larger reads; over TLS its buffer stays as the library makes it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connects. Raises OSError, TimeoutError."""
        await super().connect(uri, max(buffer_size, READ), connect_timeout)

    async def read(self, buffer_size: int) -> bytes:
        """What has come, up to READ bytes; none at the end."""
        data: bytes = await super().read(max(buffer_size, READ))
        return data
