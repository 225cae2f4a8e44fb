"""What is recorded, read back with the SDK's own memory exporters."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind as RecordedKind

from bakemesh.telemetry import INSTRUMENTS, Kind, SpanKind
from bakemesh.telemetry.sdk import Recording


class Recorded:
    """A Recording, and what it recorded."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.telemetry = Recording(
            "synapse", {"node": "alpha"}, [SimpleSpanProcessor(self.exporter)], [self.reader]
        )

    def spans(self) -> dict[str, Any]:
        """Those that ended, by name."""
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def points(self, name: str) -> list[Any]:
        """Of a metric, all that was collected."""
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    made = Recorded()
    yield made
    made.telemetry.close()
    gc.collect()


def test_a_trace_goes_over_by_its_traceparent(recorded: Recorded) -> None:
    asked = recorded.telemetry.span("ask", SpanKind.CLIENT)
    assert asked.traceparent is not None
    answered = recorded.telemetry.span("answer", SpanKind.SERVER, parent=asked.traceparent)
    answered.note({"alias": "mini"})
    answered.end("no lane")
    asked.end()
    client, server = recorded.spans()["ask"], recorded.spans()["answer"]
    assert server.context.trace_id == client.context.trace_id
    assert server.parent.span_id == client.context.span_id
    assert (client.kind, server.kind) == (RecordedKind.CLIENT, RecordedKind.SERVER)
    assert server.attributes["alias"] == "mini"
    assert server.status.description == "no lane"
    assert server.status.is_ok is False
    assert server.resource.attributes["node"] == "alpha"


def test_a_batch_is_linked_to_each_of_its_callers(recorded: Recorded) -> None:
    callers = [recorded.telemetry.span(f"caller {index}") for index in range(3)]
    links = [str(each.traceparent) for each in callers]
    recorded.telemetry.span("batch", links=[*links, "nonsense"]).end()
    batch = recorded.spans()["batch"]
    assert [link.context.span_id for link in batch.links] == [int(link.split("-")[2], 16) for link in links]


def test_a_malformed_parent_is_none(recorded: Recorded) -> None:
    recorded.telemetry.span("alone", parent="00-zz").end()
    assert recorded.spans()["alone"].parent is None


def test_every_instrument_can_be_used(recorded: Recorded) -> None:
    for name, row in INSTRUMENTS.items():
        if row.kind is Kind.COUNTER:
            recorded.telemetry.count(name, 2, {"verb": "Embed"})
        elif row.kind is Kind.HISTOGRAM:
            recorded.telemetry.record(name, row.bounds[0])
        else:
            recorded.telemetry.watch(name, lambda: [(7, {"state": "idle"})])
    for name, row in INSTRUMENTS.items():
        (point,) = recorded.points(name)
        if row.kind is Kind.HISTOGRAM:
            assert point.explicit_bounds == row.bounds
            assert point.bucket_counts[0] == 1
        else:
            assert point.value == (2 if row.kind is Kind.COUNTER else 7)


def test_a_metric_that_is_not_in_the_table_is_refused(recorded: Recorded) -> None:
    with pytest.raises(KeyError):
        recorded.telemetry.count("synapse.nothing")
