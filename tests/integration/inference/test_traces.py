"""A span of each request, which goes along as its traceparent; without telemetry no header goes along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bakemesh.inference import EngineCrashed
from bakemesh.telemetry import TRACEPARENT
from bakemesh.telemetry.sdk import Recording
from support.inference import world

CRASHED = {
    "code": "engine_crashed",
    "class": "transient",
    "safe_to_retry_same_request": 1,
    "message": "the worker died",
}


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def recording(spans: InMemorySpanExporter) -> Iterator[Recording]:
    made = Recording("app", {}, [SimpleSpanProcessor(spans)])
    yield made
    made.close()


async def test_each_request_is_a_span_that_its_node_s_are_below(
    tmp_path: Path, recording: Recording, spans: InMemorySpanExporter
) -> None:
    async with world(tmp_path, client={"telemetry": recording}) as mesh:
        await mesh.client.embed(["x"], model="mini")
        mesh.module.faults.always = CRASHED
        with pytest.raises(EngineCrashed):
            await mesh.client.generate("x", "echo")
        done, failed = spans.get_finished_spans()
        assert (done.name, done.attributes) == ("ask Embed", {"model": "mini", "node": "alpha"})
        assert done.context is not None
        sent = mesh.module.asked[0].headers[TRACEPARENT].split("-")
        assert sent[1:3] == [f"{done.context.trace_id:032x}", f"{done.context.span_id:016x}"]
        assert done.status.is_unset
        assert failed.name == "ask Generate"
        assert "EngineCrashed: node alpha: the worker died" in (failed.status.description or "")


async def test_without_telemetry_nothing_goes_along(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        await mesh.client.embed(["x"], model="mini")
        assert mesh.module.asked[0].headers == {}


ABOVE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_a_traceparent_that_is_given_goes_along_without_telemetry(tmp_path: Path) -> None:
    async with world(tmp_path) as mesh:
        await mesh.client.embed(["x"], model="mini", traceparent=ABOVE)
        assert mesh.module.asked[0].headers == {TRACEPARENT: ABOVE}


async def test_with_telemetry_the_span_is_below_the_one_that_is_given(
    tmp_path: Path, recording: Recording, spans: InMemorySpanExporter
) -> None:
    async with world(tmp_path, client={"telemetry": recording}) as mesh:
        await mesh.client.generate("x", "echo", traceparent=ABOVE)
        (done,) = spans.get_finished_spans()
        assert done.context is not None
        assert done.parent is not None
        assert f"{done.context.trace_id:032x}-{done.parent.span_id:016x}" == ABOVE[3:-3]
        assert mesh.module.asked[0].headers[TRACEPARENT] != ABOVE
