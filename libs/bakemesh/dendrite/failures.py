"""What the network does, as the status codes that the real dendrite has for it. Pure.

The messages say what happened in our words; no text of a library goes in.
Source: protocol/axon-v1.md, section 9.
"""

from __future__ import annotations

import aiohttp

from bakemesh.dendrite.errors import CallFailed
from bakemesh.dendrite.target import Target

TIMEOUT = 408
UNAVAILABLE = 503
BROKEN = 400
UNREADABLE = 422

# Foreign errors that a request may end with; everything else is a defect and passes.
FOREIGN = (TimeoutError, aiohttp.ClientError, OSError)


def failure(error: BaseException, target: Target, name: str, timeout: float) -> CallFailed:
    """What an error of FOREIGN means for the call."""
    where = f"{target.place}/{name}"
    match error:
        case aiohttp.ClientConnectorDNSError():
            return CallFailed(UNREADABLE, f"No address is known for {target.host}")
        case aiohttp.ClientSSLError():
            return CallFailed(UNAVAILABLE, f"No TLS with {where}: {_reason(error)}")
        case aiohttp.ClientConnectorError():
            return CallFailed(UNAVAILABLE, f"Service unavailable at {where}")
        case TimeoutError():
            return CallFailed(TIMEOUT, f"Request timeout after {timeout} seconds")
        case aiohttp.ClientPayloadError():
            return CallFailed(BROKEN, "Payload error: the answer broke off, or is not encoded as it says")
        case aiohttp.ClientResponseError():
            return CallFailed(
                error.status or BROKEN, "Client response error: the answer's head is no HTTP, or too long"
            )
        case aiohttp.ServerDisconnectedError() | OSError():
            return CallFailed(UNAVAILABLE, "Service disconnected: Server disconnected")
        case _:
            return CallFailed(UNREADABLE, f"Failed to parse response: {type(error).__name__}")


def _reason(error: aiohttp.ClientSSLError) -> str:
    cause = error.__cause__ or error.__context__
    return str(getattr(cause, "verify_message", "") or "the handshake failed")
