"""Telemetry of a real module, taken by a real OTLP receiver: from the client's span down to the lane's."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bakemesh.protocol.inference.requests import Embed, Generate
from bakemesh.telemetry import TRACEPARENT, SpanKind
from bakemesh.telemetry.sdk import Recording
from support.nats import server
from support.synapse import calling, synapse
from support.waiting import eventually

MODELS = {"mini": {"kind": "embed"}, "chat": {"kind": "generate"}}
POISON = {"mini": {"abort_on_item": "120"}}  # an "x"


class Collector:
    """Spans by name, metrics' points by name."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            sent = ExportTraceServiceRequest.FromString(body)
            self.spans += [
                span
                for resource in sent.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
        else:
            found = ExportMetricsServiceRequest.FromString(body)
            for resource in found.resource_metrics:
                for scope in resource.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}

    def requests(self) -> dict[tuple[str, str], int]:
        """How many ended, by verb and outcome."""
        found = {}
        for point in self.metrics["synapse.requests"].sum.data_points:
            of = {each.key: each.value.string_value for each in point.attributes}
            found[of["verb"], of["outcome"]] = int(point.as_int)
        return found

    def values(self, name: str) -> list[float]:
        """The points of a counter or a gauge."""
        metric = self.metrics.get(name)
        if metric is None:
            return []
        points = (metric.sum if metric.HasField("sum") else metric.gauge).data_points
        return [point.as_int if point.HasField("as_int") else point.as_double for point in points]

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@contextmanager
def collector() -> Iterator[tuple[Collector, str]]:
    """A receiver, and its address."""
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            made.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield made, f"http://127.0.0.1:{listening.server_address[1]}"
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


async def test_a_trace_goes_from_the_caller_to_the_lane_and_metrics_tell_the_work(tmp_path: Path) -> None:
    client = Recording("app", {})
    with collector() as (seen, url):
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }
        async with (
            server(tmp_path) as nats,
            synapse(tmp_path, nats.url, MODELS, "--telemetry=otlp", environ=environ, config=POISON),
            calling(nats.url) as caller,
        ):
            asking = client.span("ask", SpanKind.CLIENT)
            assert asking.traceparent is not None
            _, trace, parent, _ = asking.traceparent.split("-")
            headers = {TRACEPARENT: asking.traceparent}
            await caller.ask("Embed", "mini", Embed(texts=["hello"]), headers=headers)
            await caller.ask("Generate", "chat", Generate(prompt="ab", stream=True), headers=headers)
            await caller.refused("Embed", "none", Embed(texts=["x"]))
            asking.end()
            await eventually(
                lambda: (
                    seen.named("lane embed")
                    and seen.named("lane generate")
                    and len(seen.named("synapse Embed")) > 1
                ),
                what="the spans",
            )
            served = next(s for s in seen.named("synapse Embed") if s.trace_id.hex() == trace)
            assert served.parent_span_id.hex() == parent
            (lane,) = seen.named("lane embed")
            assert (lane.trace_id, lane.parent_span_id) == (served.trace_id, served.span_id)
            refused = next(s for s in seen.named("synapse Embed") if s.trace_id.hex() != trace)
            assert "model_unknown" in refused.status.message
            wanted = {
                "synapse.requests",
                "synapse.request.duration",
                "synapse.queue.depth",
                "synapse.queue.duration",
                "synapse.batch.fill",
                "synapse.tokens",
                "synapse.token.rate",
                "synapse.lanes",
                "synapse.quarantines",
                "synapse.bytes.inflight",
            }
            await eventually(lambda: wanted <= seen.metrics.keys(), what="the metrics")

            def told() -> bool:
                counts = seen.requests()
                return (counts.get(("Embed", "ok")), counts.get(("Embed", "model_unknown"))) == (1, 1)

            await eventually(told, what="the counts of requests")
            await eventually(lambda: seen.values("synapse.lane.memory"), what="the memory of a worker")
            assert all(mib > 1 for mib in seen.values("synapse.lane.memory"))
            assert "synapse.lane.crashes" not in seen.metrics
            await caller.refused("Embed", "mini", Embed(texts=["x"]))  # run once, and once more alone
            await eventually(lambda: seen.values("synapse.lane.crashes") == [2], what="both crashes")
    client.close()
