"""Traces and metrics of a process, through OpenTelemetry where somebody asks for them.

`OFF` does nothing and is what everybody has by default: no OpenTelemetry module is imported, and who is about
to make something up for telemetry asks `on` first. `telemetry_of` gives what the settings ask for. A trace
goes over the bus in the header `traceparent` (W3C Trace Context). Names of metrics: `instruments`. Left out:
logs, which are the logging module's.
"""

from bakemesh.telemetry.instruments import INSTRUMENTS, Instrument, Kind
from bakemesh.telemetry.off import NO_SPAN, OFF, Span, SpanKind, Telemetry
from bakemesh.telemetry.settings import KINDS, TelemetryRefused, TelemetrySettings, telemetry_of

TRACEPARENT = "traceparent"  # the header, on the bus as in HTTP

__all__ = [
    "INSTRUMENTS",
    "KINDS",
    "NO_SPAN",
    "OFF",
    "TRACEPARENT",
    "Instrument",
    "Kind",
    "Span",
    "SpanKind",
    "Telemetry",
    "TelemetryRefused",
    "TelemetrySettings",
    "telemetry_of",
]
