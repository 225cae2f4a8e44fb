"""Every metric, a row each. Data; what records them is `sdk`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How its values are put together."""

    COUNTER = "counter"  # a sum that rises
    HISTOGRAM = "histogram"  # a distribution
    GAUGE = "gauge"  # what is now


@dataclass(frozen=True, slots=True)
class Instrument:
    """`unit` in UCUM, as OpenTelemetry wants it. `bounds`: of a histogram's buckets."""

    kind: Kind
    unit: str
    doc: str
    bounds: tuple[float, ...] = ()


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

INSTRUMENTS: dict[str, Instrument] = {
    "synapse.requests": Instrument(Kind.COUNTER, "{request}", "requests answered, by verb and outcome"),
    "synapse.request.duration": Instrument(Kind.HISTOGRAM, "s", "from request to last answer", _SECONDS),
    "synapse.queue.duration": Instrument(Kind.HISTOGRAM, "s", "from request to its first lane", _SECONDS),
    "synapse.queue.depth": Instrument(Kind.GAUGE, "{request}", "requests that wait"),
    "synapse.queue.wait": Instrument(Kind.GAUGE, "s", "how long new interactive work would wait"),
    "synapse.bytes.inflight": Instrument(Kind.GAUGE, "By", "bytes of the requests without their last answer"),
    "synapse.tokens": Instrument(Kind.COUNTER, "{token}", "tokens read and made, by verb and direction"),
    "synapse.token.rate": Instrument(Kind.GAUGE, "{token}/s", "tokens a second that the lanes do together"),
    "synapse.batch.items": Instrument(
        Kind.HISTOGRAM, "{item}", "items of a batch", (1, 2, 4, 8, 16, 32, 64, 128, 256)
    ),
    "synapse.batch.callers": Instrument(
        Kind.HISTOGRAM, "{request}", "callers merged in a batch", (1, 2, 4, 8, 16, 32, 64)
    ),
    "synapse.batch.fill": Instrument(Kind.HISTOGRAM, "1", "tokens of a batch by what it could take", _SHARES),
    "synapse.lane.duration": Instrument(Kind.HISTOGRAM, "s", "a request on a lane, by verb", _SECONDS),
    "synapse.lane.crashes": Instrument(Kind.COUNTER, "{crash}", "requests under which a worker died"),
    "synapse.quarantines": Instrument(Kind.GAUGE, "{model}", "models refused on a lane until a probe passes"),
    "synapse.lanes": Instrument(Kind.GAUGE, "{lane}", "lanes, by state"),
    "synapse.lane.memory": Instrument(Kind.GAUGE, "MiBy", "MiB resident in a lane's worker"),
}
