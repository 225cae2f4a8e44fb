"""Ids that a caller made itself: whether they and their counts agree. Pure."""

from __future__ import annotations

from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.synapse.models.errors import TooManyTokens
from bakemesh.synapse.scheduling.asks import Failed

I32 = 4


def given_items(data: bytes, counts: list[int], most: int, *, truncate: bool) -> tuple[bytes, list[int]]:
    """The ids, and how many each item has; an item of more than `most` ids is cut at its end where
    `truncate`. Raises Failed, TooManyTokens.
    """
    total = sum(counts)
    if len(data) != I32 * total:
        said = f"data has {len(data)} bytes; the counts are of {total} ids, {I32 * total} bytes"
        raise Failed(error_of(Code.BAD_REQUEST, said))
    longest = max(counts)
    if longest <= most:
        return data, counts
    if not truncate:
        raise TooManyTokens(longest, most, counts.index(longest))
    kept: list[bytes] = []
    begin = 0
    for count in counts:
        kept.append(data[begin : begin + I32 * min(count, most)])
        begin += I32 * count
    return b"".join(kept), [min(count, most) for count in counts]


def given_prompt(data: bytes) -> bytes:
    """The ids of a prompt. Raises Failed."""
    if not data or len(data) % I32:
        said = f"data has {len(data)} bytes; ids have {I32} each, and a prompt one or more"
        raise Failed(error_of(Code.BAD_REQUEST, said))
    return data
