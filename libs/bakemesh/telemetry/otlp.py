"""OTLP over HTTP. Where to is read by the exporters from OpenTelemetry's own variables."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from bakemesh.telemetry.sdk import Recording
from bakemesh.telemetry.settings import TelemetrySettings


def recording(settings: TelemetrySettings) -> Recording:
    """Records, and sends from threads of its own: nobody here waits for a collector."""
    return Recording(
        settings.service,
        settings.resource,
        [BatchSpanProcessor(OTLPSpanExporter())],
        [PeriodicExportingMetricReader(OTLPMetricExporter())],
    )
