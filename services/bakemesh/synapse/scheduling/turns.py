"""Whose turn it is among the classes: pure.

Control first; bulk that waited 250 ms next; then three quanta of interactive to one of bulk. Bulk waits while
some of it is queued **and none of it runs**: an interactive request that comes during a quantum of bulk
begins after that quantum, however long it took. A class that has nothing that can run lets the next one pass.
"""

from __future__ import annotations

from typing import NamedTuple

from bakemesh.synapse.scheduling.asks import BULK, CONTROL, INTERACTIVE


class Turns(NamedTuple):
    """`interactive`: its quanta since the last one of bulk."""

    interactive: int = 0


def order(turns: Turns, bulk_waited_s: float, *, waits_s: float, most: int) -> tuple[str, str, str]:
    """The classes, first the one whose turn it is."""
    if bulk_waited_s >= waits_s or turns.interactive >= most:
        return (CONTROL, BULK, INTERACTIVE)
    return (CONTROL, INTERACTIVE, BULK)


def after(turns: Turns, served: str, *, bulk_waits: bool) -> Turns:
    """Once a quantum of `served` was given to a lane. Interactive quanta count only while bulk waits."""
    if served == BULK:
        return Turns()
    if served == INTERACTIVE:
        count = turns.interactive + 1 if bulk_waits else 0
        return turns if count == turns.interactive else Turns(count)
    return turns
