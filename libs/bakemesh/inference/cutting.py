"""Cuts a call's items into requests that the server takes, and says what cannot be sent at all. Pure.

Items go in order, as many a request as fit into half of the server's `max_payload`, and at most MOST_ITEMS of
them: large calls so spread over nodes, and none of their requests is so large that it is a whole queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from bakemesh.inference.errors import refused
from bakemesh.protocol.inference.errors import Code

MOST_ITEMS = 1024
ENVELOPE = 512  # bytes of a request without its items, and to spare
PER_ITEM = 5  # msgpack's own, at most


def text_size(text: str, item: int) -> int:
    """Bytes of a text in a request. Raises BadRequest for one that is no Unicode."""
    if text.isascii():
        return len(text) + PER_ITEM
    try:
        return len(text.encode()) + PER_ITEM
    except UnicodeEncodeError as error:
        raise refused(Code.BAD_REQUEST, f"item {item} is no valid text: {error.reason}", item=item) from None


def room_for(max_payload: int, shared: int = 0) -> int:
    """Bytes of items a request; `shared`: what every request carries beside them. Raises BadRequest where
    that leaves nothing.
    """
    room = max_payload // 2 - ENVELOPE - shared
    if room <= PER_ITEM:
        raise refused(
            Code.BAD_REQUEST,
            f"what all items share has {shared:,} bytes; at most {max_payload // 2 - ENVELOPE:,} fit into a "
            f"request (half of the server's max_payload of {max_payload:,})",
        )
    return room


def cut(sizes: Sequence[int], room: int, most: int = MOST_ITEMS) -> list[range]:
    """The items of each request, by their sizes in bytes. Raises BadRequest for an item beyond `room`."""
    pieces: list[range] = []
    first, filled = 0, 0
    for item, size in enumerate(sizes):
        if size > room:
            raise refused(
                Code.BAD_REQUEST,
                f"item {item} has {size:,} bytes; at most {room:,} fit into a request (half of the server's "
                "max_payload, less the envelope); make it shorter",
                item=item,
            )
        if item > first and (filled + size > room or item - first == most):
            pieces.append(range(first, item))
            first, filled = item, 0
        filled += size
    if sizes:
        pieces.append(range(first, len(sizes)))
    return pieces
