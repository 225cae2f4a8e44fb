"""Which node gets the next request: pure, `draw` (0 to 1) is the only chance in it.

The node where the work would be done first is preferred, in proportion to how sure that is. A node's wait is
what its last Status said, less the time since, plus what this client has sent there itself. Where others send
too, that forecast errs, and all of them would run after the same node: so the forecast's own error (`doubt`,
learnt from each Status against what was expected of it) is the measure within which nodes count as equal, and
among equals a node is drawn in proportion to its rate. A client that is alone errs little and chooses nearly
always the best; a thousand that know nothing of each other spread as the nodes' rates are.

Left out: which nodes may be asked at all (`nodes`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_DOUBT_S = 0.002  # a Status tells whole milliseconds, and takes one to come
FIRST_DOUBT_S = 0.05  # of a node of which only one Status is known
SOON = 0.2  # how fast doubt follows the errors
NEAR = 4.0  # doubts by which a node may be later and still be drawn
UNKNOWN_RATE = 1000.0  # tokens a second of a lane that has measured nothing yet
LOAD_S = 1.0  # what bringing a model into memory counts as
NO_LANE_S = 10.0  # what counts a node on which no lane is up now


@dataclass(frozen=True, slots=True)
class Load:
    """A node as it is seen now. `wait_s`: until work of this class would begin; `rate`: tokens a second;
    `doubt_s`: how far such forecasts were off lately.
    """

    node_id: str
    wait_s: float
    rate: float
    doubt_s: float = LEAST_DOUBT_S

    def done_s(self, tokens: float) -> float:
        """In how many seconds so many more tokens would be done."""
        return self.wait_s + tokens / self.rate


@dataclass(slots=True)
class Forecast:
    """When a node will be free, by a clock that its Status sets and what is sent there moves on.

    Interactive work passes bulk, so each has a time of its own (`control` counts as interactive).
    """

    rate: float = UNKNOWN_RATE
    free_at: float = 0.0
    bulk_free_at: float = 0.0
    doubt_s: float = FIRST_DOUBT_S
    known: bool = False

    def told(self, now: float, wait_s: float, backlog: float, rate: float, lanes: int) -> None:
        """A Status says that: new interactive work waits for `wait_s`, `backlog` tokens wait or run."""
        self.rate = rate if rate > 0 else UNKNOWN_RATE * max(1, lanes)
        if lanes == 0:
            wait_s = max(wait_s, NO_LANE_S)
        if self.known:
            error = abs(max(0.0, self.free_at - now) - wait_s)
            self.doubt_s = max(LEAST_DOUBT_S, self.doubt_s + SOON * (error - self.doubt_s))
        self.known = True
        self.free_at = now + wait_s
        self.bulk_free_at = now + max(wait_s, backlog / self.rate)

    def sent(self, now: float, tokens: float, *, bulk: bool) -> None:
        """This client sends so much there."""
        takes = tokens / self.rate
        self.bulk_free_at = max(now, self.bulk_free_at) + takes
        if not bulk:
            self.free_at = max(now, self.free_at) + takes

    def wait_s(self, now: float, *, bulk: bool) -> float:
        """How long new work would wait to begin."""
        return max(0.0, (self.bulk_free_at if bulk else self.free_at) - now)


def choose(loads: Sequence[Load], tokens: float, draw: float) -> Load:
    """One of them, which must not be none; `draw`: evenly from [0, 1)."""
    first = min(load.done_s(tokens) for load in loads)
    near = []
    for load in loads:
        doubts = (load.done_s(tokens) - first) / max(LEAST_DOUBT_S, load.doubt_s)
        if doubts <= NEAR:
            near.append((load, load.rate * math.exp(-doubts)))
    point = draw * sum(weight for _, weight in near)
    for load, weight in near:
        point -= weight
        if point < 0:
            return load
    return near[-1][0]  # rounding ate the rest
