"""Requests into quanta: pure.

A quantum has at most 512 tokens and 256 items; an item is never divided, so one longer than that is a quantum
by itself. How engines divide a quantum further (at most 256 tokens an encode) is their matter.
"""

from __future__ import annotations

from collections.abc import Sequence


def cut(
    counts: Sequence[int], extra: int, at: int, end: int, tokens: int, items: int, *, whole: bool
) -> tuple[int, int]:
    """Of the items `at` to `end` those that fit: where they stop, and their tokens.

    `extra`: what each item costs beside its own tokens (a query). `whole`: the quantum is empty yet, so that
    one item goes in however long it is.
    """
    last, used = min(end, at + items), 0
    for index in range(at, last):
        cost = counts[index] + extra
        if used + cost > tokens and not (whole and index == at):
            return index, used
        used += cost
    return last, used


def quantum(waiting_tokens: int, idle: int, *, most: int, least: int) -> int:
    """The tokens of the next quantum, where `idle` lanes could take one: what waits is divided among them,
    but into nothing smaller than what an engine does well."""
    if idle <= 1:
        return most
    return min(most, max(least, -(-waiting_tokens // idle)))
