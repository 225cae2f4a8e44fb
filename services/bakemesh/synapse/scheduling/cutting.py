"""Requests into quanta: pure.

A quantum has at most 512 tokens and 256 items, and on a slow lane fewer, so that it is over soon; an item is
never divided, so one longer than that is a quantum by itself. How engines divide a quantum further (at most
256 tokens an encode) is their matter.
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


def most_tokens(rate: float, *, most: int, least: int, within_s: float) -> int:
    """The tokens that a lane of `rate` tokens a second (0: not known) does in `within_s`.

    What an interactive request waits for is a time, and small quanta cost an engine next to nothing: a slow
    lane gets smaller ones.
    """
    return most if rate <= 0 else min(most, max(least, int(rate * within_s)))


def quantum(waiting_tokens: int, idle: int, *, most: int, least: int) -> int:
    """The tokens of the next quantum, where `idle` lanes could take one: what waits is divided among them,
    but into nothing smaller than what an engine does well."""
    if idle <= 1:
        return most
    return min(most, max(least, -(-waiting_tokens // idle)))
