"""Rows into messages: pure. What goes out is cut between items alone, each part at most half of what the
server takes."""

from __future__ import annotations

from collections.abc import Iterator

F32 = 4
FRAME_BYTES = 512  # of an envelope and its other entries, at most


def rows_a_message(dims: int, most_bytes: int) -> int:
    """How many rows go into one message; 0 where not even one does."""
    return max(0, most_bytes - FRAME_BYTES) // max(1, dims * F32)


def parts(first: int, n: int, rows: int) -> Iterator[tuple[int, int]]:
    """`(first, n)` of each message for the rows `first` … `first + n - 1`, `rows` of them at most in each."""
    end = first + n
    while first < end:
        step = min(rows, end - first)
        yield first, step
        first += step
