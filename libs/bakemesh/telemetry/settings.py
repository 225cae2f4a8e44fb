"""Whether a process tells anything, and to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bakemesh.telemetry.off import OFF, Telemetry

KINDS = ("off", "otlp")


class TelemetryRefused(Exception):
    """Raised when telemetry is asked for that this installation cannot give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """`kind` otlp: OTLP over HTTP, to where the standard variables say (`OTEL_EXPORTER_OTLP_ENDPOINT`,
    `…_HEADERS`, `OTEL_METRIC_EXPORT_INTERVAL`, …). `service` and `resource` name this process.
    """

    kind: str = "off"
    service: str = "bakemesh"
    resource: Mapping[str, str] = field(default_factory=dict)


def telemetry_of(settings: TelemetrySettings) -> Telemetry:
    """What the settings ask for. Raises TelemetryRefused where it is not installed, or unknown."""
    if settings.kind == "off":
        return OFF
    if settings.kind not in KINDS:
        raise TelemetryRefused(f"telemetry {settings.kind!r} is none of {', '.join(KINDS)}")
    try:
        from bakemesh.telemetry import otlp
    except ImportError as error:
        raise TelemetryRefused(
            f"telemetry {settings.kind!r} needs OpenTelemetry ({error.name} is not there): "
            "install bakemesh[otel]"
        ) from error
    return otlp.recording(settings)
