"""What a gateway counts, as Prometheus text on /metrics; in a registry of its own.

Guarantee: labels are names of routes, verdicts and profiles, never what a client made up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

NO_ROUTE = "-"
GONE = "client_gone"
CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """Everything that is counted; others of the gateway may count in `registry` too."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "bakemesh_axon_requests",
            "Requests that ended, by how.",
            ("route", "verdict", "profile"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "bakemesh_axon_seconds",
            "From a request's headers to the end of its answer.",
            ("route",),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self._parts = Counter(
            "bakemesh_axon_stream_parts", "Parts of streams.", ("route",), registry=self.registry
        )
        self._count = lru_cache(maxsize=4096)(self._requests.labels)
        self._time = lru_cache(maxsize=1024)(self._seconds.labels)
        self._part = lru_cache(maxsize=1024)(self._parts.labels)

    def watch(self, name: str, what: str, value: Callable[[], float]) -> None:
        """A gauge that is looked at when somebody asks."""
        Gauge(f"bakemesh_axon_{name}", what, registry=self.registry).set_function(value)

    def ended(self, route: str, verdict: str, profile: str, seconds: float) -> None:
        """A request did."""
        self._count(route, verdict, profile).inc()
        self._time(route).observe(seconds)

    def parts(self, route: str, number: int) -> None:
        """So many parts of a stream were sent."""
        self._part(route).inc(number)

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self.registry)
