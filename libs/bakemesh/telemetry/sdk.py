"""Telemetry through opentelemetry-sdk. Its providers are its own, never OpenTelemetry's global ones: what a
program around it does with those is its own business. Imported only where telemetry is on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bakemesh.telemetry.instruments import INSTRUMENTS, Instrument, Kind
from bakemesh.telemetry.off import Attributes, Observed, Span, SpanKind, Telemetry

SCOPE = "bakemesh"
_TRACE_CONTEXT = TraceContextTextMapPropagator()
_KINDS = {
    SpanKind.CLIENT: trace.SpanKind.CLIENT,
    SpanKind.SERVER: trace.SpanKind.SERVER,
    SpanKind.INTERNAL: trace.SpanKind.INTERNAL,
}


class RecordedSpan(Span):
    """A span of the SDK."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    @property
    def traceparent(self) -> str | None:
        """See Span."""
        carrier: dict[str, str] = {}
        _TRACE_CONTEXT.inject(carrier, trace.set_span_in_context(self._span, Context()))
        return carrier.get("traceparent")

    def note(self, attributes: Attributes) -> None:
        """See Span."""
        self._span.set_attributes(dict(attributes))

    def end(self, problem: str | None = None) -> None:
        """See Span."""
        if problem is not None:
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, problem))
        self._span.end()


class Recording(Telemetry):
    """Records spans for `processors` and metrics for `readers`, which are the SDK's own."""

    on = True

    def __init__(
        self,
        service: str,
        resource: Mapping[str, str],
        processors: Sequence[SpanProcessor] = (),
        readers: Sequence[MetricReader] = (),
    ) -> None:
        made = Resource.create({"service.name": service, **resource})
        self._spans = TracerProvider(resource=made, shutdown_on_exit=False)
        for processor in processors:
            self._spans.add_span_processor(processor)
        self._tracer = self._spans.get_tracer(SCOPE)
        self._metrics = MeterProvider(
            metric_readers=readers, resource=made, views=list(_views()), shutdown_on_exit=False
        )
        self._meter = self._metrics.get_meter(SCOPE)
        self._made: dict[str, Any] = {
            name: self._instrument(name, row)
            for name, row in INSTRUMENTS.items()
            if row.kind is not Kind.GAUGE
        }
        self._closed = False

    def _instrument(self, name: str, row: Instrument) -> Any:
        if row.kind is Kind.COUNTER:
            return self._meter.create_counter(name, row.unit, row.doc)
        return self._meter.create_histogram(name, row.unit, row.doc)

    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        parent: str | None = None,
        links: Sequence[str] = (),
        attributes: Attributes | None = None,
    ) -> Span:
        """See Telemetry."""
        return RecordedSpan(
            self._tracer.start_span(
                name,
                context=None if parent is None else _context(parent),
                kind=_KINDS[kind],
                links=[trace.Link(found) for link in links if (found := _named(link)).is_valid],
                attributes=None if attributes is None else dict(attributes),
            )
        )

    def count(self, name: str, more: float = 1, attributes: Attributes | None = None) -> None:
        """See Telemetry."""
        self._made[name].add(more, attributes)

    def record(self, name: str, value: float, attributes: Attributes | None = None) -> None:
        """See Telemetry."""
        self._made[name].record(value, attributes)

    def watch(self, name: str, read: Callable[[], Observed]) -> None:
        """See Telemetry."""
        row = INSTRUMENTS[name]

        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for value, attributes in read():
                yield Observation(value, dict(attributes))

        self._meter.create_observable_gauge(name, [observe], row.unit, row.doc)

    def close(self, within_s: float = 2.0) -> None:
        """See Telemetry. An exporter that hangs is left to its own daemon thread."""
        if self._closed:
            return
        self._closed = True
        ending = threading.Thread(target=self._shut, name="telemetry end", daemon=True)
        ending.start()
        ending.join(within_s)

    def _shut(self) -> None:
        self._spans.shutdown()
        self._metrics.shutdown()


def _views() -> Iterator[View]:
    for name, row in INSTRUMENTS.items():
        if row.kind is Kind.HISTOGRAM:
            yield View(instrument_name=name, aggregation=ExplicitBucketHistogramAggregation(row.bounds))


def _context(traceparent: str) -> Context:
    return _TRACE_CONTEXT.extract({"traceparent": traceparent}, Context())


def _named(traceparent: str) -> trace.SpanContext:
    return trace.get_current_span(_context(traceparent)).get_span_context()
