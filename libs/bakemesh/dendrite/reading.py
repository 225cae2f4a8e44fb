"""An answer's body as a whole, up to a limit, which counts what comes out of a compressed one."""

from __future__ import annotations

import aiohttp

from bakemesh.dendrite import failures
from bakemesh.dendrite.errors import CallFailed


async def whole(response: aiohttp.ClientResponse, largest: int) -> bytes:
    """The body. Raises CallFailed where it is larger; the connection is not used again then."""
    announced = response.content_length
    if announced is not None and announced > largest:
        raise _too_large(response, largest)
    if announced is not None and "content-encoding" not in response.headers:
        return await response.read()
    found = bytearray()
    async for chunk in response.content.iter_any():
        found += chunk
        if len(found) > largest:
            raise _too_large(response, largest)
    return bytes(found)


def _too_large(response: aiohttp.ClientResponse, largest: int) -> CallFailed:
    response.close()
    return CallFailed(failures.BROKEN, f"Payload error: the answer has more than {largest} bytes")
