"""What the module tells of its work, where telemetry is on: runs on lanes, and what is now.

Gauges are read from another thread: they look at the last Status and at the lanes' last views, nothing else.
Requests and their spans are told where they end (`answering.desk`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from bakemesh.synapse.lanes.base import LaneView
from bakemesh.synapse.scheduling.asks import Ran
from bakemesh.synapse.scheduling.settings import Settings
from bakemesh.telemetry import Telemetry
from bakemesh.telemetry.off import Observed

if TYPE_CHECKING:
    from bakemesh.synapse.publishing import Publishing

_QUANTUM = Settings().quantum_tokens


class Measures:
    """`told` is the core's, of each run; `look` registers the gauges."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def told(self, ran: Ran) -> None:
        """A run gave a result."""
        record, verb = self._telemetry.record, {"verb": ran.kind}
        record("synapse.queue.duration", ran.queued_s, verb)
        record("synapse.lane.duration", ran.took_s, verb)
        self._telemetry.count("synapse.tokens", ran.tokens, verb)
        if ran.kind == "embed":
            record("synapse.batch.items", ran.items)
            record("synapse.batch.callers", ran.callers)
            record("synapse.batch.fill", min(1.0, ran.tokens / _QUANTUM))

    def look(self, publishing: Publishing) -> None:
        """Watches the module through its Status."""
        watch = self._telemetry.watch
        for name, field, scale in _NUMBERS:
            watch(name, partial(_number, publishing, field, scale))
        watch("synapse.lanes", lambda: lanes_by_state(publishing.views))
        watch("synapse.quarantines", lambda: [(_refused(publishing.views), {})])
        watch("synapse.lane.memory", lambda: memory(publishing.views))


_NUMBERS = (
    ("synapse.queue.depth", "queued", 1.0),
    ("synapse.queue.wait", "waitms", 0.001),
    ("synapse.bytes.inflight", "bytesinflight", 1.0),
    ("synapse.token.rate", "rate", 1.0),
)


def _number(publishing: Publishing, field: str, scale: float) -> Observed:
    last = publishing.last
    return [] if last is None else [(getattr(last, field) * scale, {})]


def lanes_by_state(views: Sequence[LaneView]) -> Observed:
    """How many lanes are in each state."""
    return [(number, {"state": state}) for state, number in Counter(view.state for view in views).items()]


def memory(views: Sequence[LaneView]) -> Observed:
    """Of each lane whose worker said it."""
    return [(view.rss_mb, {"lane": view.name}) for view in views if view.rss_mb is not None]


def _refused(views: Sequence[LaneView]) -> int:
    return sum(len(view.refused) for view in views)
