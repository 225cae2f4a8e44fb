"""Telemetry that is off costs nothing and needs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bakemesh.telemetry import NO_SPAN, OFF, TelemetryRefused, TelemetrySettings, telemetry_of


def test_off_is_the_default_and_one_and_the_same() -> None:
    assert telemetry_of(TelemetrySettings()) is OFF
    assert not OFF.on


def test_off_takes_everything_and_gives_no_trace() -> None:
    span = OFF.span("x", parent="00-" + "1" * 32 + "-" + "2" * 16 + "-01", attributes={"a": 1})
    assert span is NO_SPAN
    span.note({"b": 2})
    span.end("went wrong")
    assert span.traceparent is None
    OFF.count("synapse.requests")
    OFF.record("synapse.request.duration", 0.1)
    OFF.watch("synapse.lanes", lambda: [(1, {})])
    OFF.close()


@pytest.mark.parametrize("module", ["bakemesh.telemetry", "bakemesh.synapse.service"])
def test_off_imports_no_opentelemetry(module: str) -> None:
    code = f"import sys, {module}; print(*[name for name in sys.modules if name.startswith('opentelemetry')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(TelemetryRefused, match=r"'jaeger'.*off, otlp"):
        telemetry_of(TelemetrySettings(kind="jaeger"))


def test_what_is_not_installed_is_said_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from bakemesh.telemetry import *\n"
        "try: telemetry_of(TelemetrySettings(kind='otlp'))\n"
        "except TelemetryRefused as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "bakemesh[otel]" in found.stdout
