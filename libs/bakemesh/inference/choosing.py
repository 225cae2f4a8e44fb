"""Which node gets the next request: pure, `draw` (0 to 1) is the only chance in it.

The node where the work would be done first is preferred, in proportion to how sure that is. Of the time that
the work itself takes a quarter counts: would each caller mind his own end alone, the fastest node would have
a queue while a slower one idles, and all would end later (the simulation in the tests shows it).

A node's wait is what its last Status said, less the time since, plus what this client has sent there itself.
Where others send too that forecast errs; each Status shows by how much. What it errs by on average (`bias`)
is added to it, more of it the older the Status is; what it errs by beyond that (`doubt`) is the measure
within which nodes count as equal, and among equals a node is drawn in proportion to its rate. A client that
is alone errs little and chooses nearly always the best; a thousand that know nothing of each other do not
run after the same node.

Left out: which nodes may be asked at all (`nodes`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

LEAST_DOUBT_S = 0.002  # a Status tells whole milliseconds, and takes one to come
FIRST_DOUBT_S = 0.05  # of a node of which only one Status is known
FIRST_EVERY_S = 0.25  # between two Status of a node that works
LEARNS_S = 2.5  # how fast bias and doubt follow the errors
OWN_WORK = 0.25  # how much the work's own time counts beside the wait for its begin
NEAR = 4.0  # doubts by which a node may be later and still be drawn
UNKNOWN_RATE = 1000.0  # tokens a second of a lane that has measured nothing yet
LOAD_S = 1.0  # what bringing a model into memory counts as
NO_LANE_S = 10.0  # what a node counts on which no lane is up now


@dataclass(frozen=True, slots=True)
class Load:
    """A node as it is seen now. `wait_s`: until work of this class would begin; `rate`: tokens a second;
    `doubt_s`: how far such forecasts were off lately.
    """

    node_id: str
    wait_s: float
    rate: float
    doubt_s: float = LEAST_DOUBT_S

    def counts_s(self, tokens: float) -> float:
        """By what nodes are compared for so many tokens, in seconds."""
        return self.wait_s + OWN_WORK * tokens / self.rate


@dataclass(slots=True)
class Clock:
    """When a node will be free for a class of work: set by its Status, moved on by what is sent there."""

    free_at: float = 0.0
    told_at: float | None = None
    every_s: float = FIRST_EVERY_S
    bias_s: float = 0.0
    doubt_s: float = FIRST_DOUBT_S

    def told(self, now: float, wait_s: float) -> None:
        """A Status says how long new work waits."""
        if self.told_at is not None:
            error, passed = wait_s - max(0.0, self.free_at - now), max(0.0, now - self.told_at)
            weight = 1 - math.exp(-passed / LEARNS_S)
            off = abs(error - self.bias_s)
            self.doubt_s = max(LEAST_DOUBT_S, self.doubt_s + weight * (off - self.doubt_s))
            self.bias_s += weight * (error - self.bias_s)
            self.every_s += weight * (passed - self.every_s)
        self.told_at, self.free_at = now, now + wait_s

    def sent(self, now: float, takes_s: float) -> None:
        """This client sends so much there."""
        self.free_at = max(now, self.free_at) + takes_s

    def wait_s(self, now: float) -> float:
        """How long new work would wait to begin."""
        age = min(1.0, (now - (self.told_at or now)) / self.every_s) if self.every_s > 0 else 1.0
        return max(0.0, max(0.0, self.free_at - now) + age * self.bias_s)


@dataclass(slots=True)
class Forecast:
    """A node's rate and its clocks. Interactive work passes bulk, so each has one of its own (`control`
    counts as interactive).
    """

    rate: float = UNKNOWN_RATE
    interactive: Clock = field(default_factory=Clock)
    bulk: Clock = field(default_factory=Clock)

    def told(self, now: float, wait_s: float, backlog: float, rate: float, lanes: int) -> None:
        """A Status says that: new interactive work waits for `wait_s`, `backlog` tokens wait or run."""
        self.rate = rate if rate > 0 else UNKNOWN_RATE * max(1, lanes)
        if lanes == 0:
            wait_s = max(wait_s, NO_LANE_S)
        self.interactive.told(now, wait_s)
        self.bulk.told(now, max(wait_s, backlog / self.rate))

    def sent(self, now: float, tokens: float, *, bulk: bool) -> None:
        """This client sends so much there."""
        takes = tokens / self.rate
        self.bulk.sent(now, takes)
        if not bulk:
            self.interactive.sent(now, takes)

    def load(self, node_id: str, now: float, *, bulk: bool) -> Load:
        """The node as it is seen now."""
        clock = self.bulk if bulk else self.interactive
        return Load(node_id, clock.wait_s(now), self.rate, clock.doubt_s)


def choose(loads: Sequence[Load], tokens: float, draw: float) -> Load:
    """One of them, which must not be none; `draw`: evenly from [0, 1)."""
    first = min(load.counts_s(tokens) for load in loads)
    near = []
    for load in loads:
        doubts = (load.counts_s(tokens) - first) / max(LEAST_DOUBT_S, load.doubt_s)
        if doubts <= NEAR:
            near.append((load, load.rate * math.exp(-doubts)))
    point = draw * sum(weight for _, weight in near)
    for load, weight in near:
        point -= weight
        if point < 0:
            return load
    return near[-1][0]  # rounding ate the rest
