"""What a start file says: to a crank host, and to a service of bakemesh's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bakemesh.crank.start import ServiceStart, Start, StartRefused
from bakemesh.protocol.builder.spec.component import ComponentSpec, Parameter, ScriptCrank, ServiceCrank

SCRIPT = ComponentSpec(name="one", crank=ScriptCrank(script="x.py", source="def crank(api): pass"))
SERVICE = ComponentSpec(
    name="lanes",
    crank=ServiceCrank(service="lanes"),
    parameters=(Parameter(name="workers", value=2), Parameter(name="engine", value="fake")),
    shutdown_ms=8000,
)


def told(component: ComponentSpec, **more: Any) -> dict[str, Any]:
    said = {
        "spec": json.loads(component.to_json()),
        "instance": "i1",
        "node": "Alpha",
        "nodeid": "alpha",
        "mesh": "psyclone",
        "nats": ["nats://h:4222"],
        "creds": None,
        "tls": None,
        "data": "/state/components/lanes/data",
    }
    return {**said, **more}


def test_a_service_gets_its_parameters_its_place_and_its_time(tmp_path: Path) -> None:
    file = tmp_path / "start.json"
    file.write_text(json.dumps(told(SERVICE, creds="/keys/lanes.nk")))
    start = ServiceStart.read(file, "lanes")
    assert start.parameters() == {"workers": 2, "engine": "fake"}
    assert (start.name, start.node_id, start.folder) == ("lanes", "alpha", tmp_path)
    assert start.shutdown_s == 7.0
    bus = start.bus()
    assert (bus.party, bus.sender, bus.servers) == ("lanes", "lanes@alpha", ("nats://h:4222",))
    assert bus.credentials is not None


def test_each_takes_its_own_kind_of_crank_alone(tmp_path: Path) -> None:
    assert Start.of(told(SCRIPT), tmp_path).crank.script == "x.py"
    with pytest.raises(StartRefused, match="has no script"):
        Start.of(told(SERVICE), tmp_path)
    with pytest.raises(StartRefused, match="service='lanes'"):
        ServiceStart.of(told(SCRIPT), tmp_path, "lanes")
    with pytest.raises(StartRefused, match="service='synapse'"):
        ServiceStart.of(told(SERVICE), tmp_path, "synapse")


@pytest.mark.parametrize(
    ("more", "said"),
    [({"nodeid": "a b"}, "' '"), ({"nats": []}, "at least one URL"), ({"spec": {}}, "no component spec")],
)
def test_what_is_wrong_is_named(more: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=said):
        ServiceStart.of(told(SERVICE, **more), tmp_path, "lanes")
    without = told(SERVICE)
    del without["instance"]
    with pytest.raises(StartRefused, match="instance"):
        ServiceStart.of(without, tmp_path, "lanes")
    (tmp_path / "start.json").write_text("{")
    with pytest.raises(StartRefused):
        ServiceStart.read(tmp_path / "start.json", "lanes")
