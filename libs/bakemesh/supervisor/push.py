"""A push cut into parts: at most 1 MiB each, numbered from 1, the last one marked. Pure.

The Builder takes up to 64 MiB a bake; more is refused here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from bakemesh.protocol.builder.messages import BakeDataPush
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor.errors import MessageTooLarge

PART_BYTES = 1024**2
PUSH_BYTES = 64 * 1024**2
ENVELOPE_BYTES = 4096  # room for the envelope, the identity entries and the request's name


def parts(identity: Identity, request: str, data: bytes | str, max_payload: int) -> Iterator[BakeDataPush]:
    """The messages of one push, an empty one included. Raises MessageTooLarge before the first."""
    whole = data.encode() if isinstance(data, str) else bytes(data)
    if len(whole) > PUSH_BYTES:
        raise MessageTooLarge(f"the push for request {request!r}", len(whole), PUSH_BYTES, "a bake")
    size = min(PART_BYTES, max_payload - ENVELOPE_BYTES)
    if size < 1:
        raise MessageTooLarge(
            "a push's envelope alone", ENVELOPE_BYTES, max_payload, "the server (max_payload)"
        )
    return _cut(identity, request, whole, size)


def _cut(identity: Identity, request: str, whole: bytes, size: int) -> Iterator[BakeDataPush]:
    count = max(1, -(-len(whole) // size))
    for index in range(count):
        yield BakeDataPush(
            **identity.fields(),
            request=request,
            data=whole[index * size : (index + 1) * size],
            part=index + 1,
            lastpart=index + 1 == count,
        )
