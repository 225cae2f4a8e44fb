"""Whether a request is taken: pure. Numbers in, an error or None out; what is refused is refused at once.

Predictions are of what is believed (see `estimates`), so a request is refused for time only where that was
measured. A generation's text may end at any token: what it must have time for is its prompt and one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.synapse.scheduling.settings import Settings


class Wish(NamedTuple):  # one a request, like Room: a frozen dataclass takes three times as long to make
    """A request as admission sees it. `work_s`: at least so many seconds of lanes; `spread`: of how many at
    once. `left_s`: of its caller's time."""

    size: int
    items: int
    tokens: int
    left_s: float
    work_s: float = 0.0
    spread: int = 1


class Room(NamedTuple):
    """`bytes_in_flight`: of the others. `starts_in_s`: before this one would begin. `drains_in_s`: before all
    that is here is done."""

    bytes_in_flight: int
    starts_in_s: float
    drains_in_s: float = 0.0


def starts_in(running_left_s: Iterable[float], ahead_s: float, lanes: int, idle: int) -> float:
    """Seconds before new work begins: what runs and what goes before it, divided by the lanes. 0 where a lane
    is idle and nothing goes before; also where no lane is up, for nobody knows when one will be."""
    if lanes <= 0 or (idle > 0 and ahead_s <= 0):
        return 0.0
    left = sorted(running_left_s)
    if ahead_s <= 0:
        return left[0] if len(left) >= lanes else 0.0
    return (sum(left) + ahead_s) / lanes


def ahead_of_interactive(same_s: float, bulk_s: float, turns: int) -> float:
    """Of interactive work `same_s` goes before, and of bulk what its turns let in between."""
    return same_s + min(bulk_s, same_s / turns)


def refusal(limits: Settings, wish: Wish, room: Room) -> ErrorObject | None:
    """Why it is not taken."""
    if wish.items < 1 or wish.tokens < 1:
        return error_of(Code.BAD_REQUEST, "there is nothing in it; it needs one item of one token or more")
    if wish.items > limits.items:
        said = f"{wish.items} items in one request; {limits.items} is the most: send it in parts"
        return error_of(Code.BAD_REQUEST, said)
    if wish.tokens > limits.tokens:
        said = f"{wish.tokens} tokens in one request; {limits.tokens} is the most: send it in parts"
        return error_of(Code.BAD_REQUEST, said)
    if wish.size > limits.bytes_in_flight:
        said = f"a request of {wish.size} bytes; {limits.bytes_in_flight} are the most: send it in parts"
        return error_of(Code.BAD_REQUEST, said)
    if wish.left_s <= 0:
        return error_of(Code.DEADLINE_EXCEEDED, "the caller's time was over before the request was here")
    if room.bytes_in_flight + wish.size > limits.bytes_in_flight:
        said = f"{room.bytes_in_flight} bytes of requests are here, of {limits.bytes_in_flight} at most"
        return error_of(Code.QUEUE_FULL, said, retry_after_ms=_ms(max(room.drains_in_s / 2, 0.01)))
    if room.starts_in_s > limits.max_queue_s:
        said = f"it would begin in {room.starts_in_s:.3g} s; {limits.max_queue_s:g} s is the limit"
        return error_of(Code.QUEUE_FULL, said, retry_after_ms=_ms(room.starts_in_s - limits.max_queue_s / 2))
    ends_in = room.starts_in_s + wish.work_s / max(1, wish.spread)
    if ends_in > wish.left_s:
        said = f"it would end in {ends_in:.3g} s; its caller waits {wish.left_s:.3g} s"
        return error_of(Code.DEADLINE_EXCEEDED, said)
    return None


def _ms(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))
