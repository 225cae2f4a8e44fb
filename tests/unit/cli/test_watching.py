"""What `watch` takes for news, and what not."""

from __future__ import annotations

from typing import Any

from bakemesh.cli.watching import Bake, View, line
from bakemesh.protocol.builder.messages import BakePaused, BakeStatus, BakeSuccess, Performance, SystemStatus
from bakemesh.supervisor.nodes import NodeInfo


def status(node: str = "alpha", **more: Any) -> SystemStatus:
    values: dict[str, Any] = {
        "boot": "b", "bakes": 0, "queued": 0, "load": 0.0, "draining": False, "configcomplete": True,
        "version": "1", "protocols": [], "stepkinds": [], "components": [],
    }  # fmt: skip
    return SystemStatus(node=node, node_id=node, **(values | more))


def said(cls: type[BakeStatus], serial: int, summary: str = "works", **more: Any) -> BakeStatus:
    kind = "interim" if cls is BakeStatus else "outcome"
    values: dict[str, Any] = {"kind": kind, "serial": serial, "pct": -1, "summary": summary}
    names = {"supervisor": "s", "recipe": "r", "recipe_id": "s-r-1", "node": "alpha", "node_id": "alpha"}
    return cls(**names, **(values | more))


def row(state: str, recipe_id: str = "s-r-1") -> Bake:
    return Bake(recipe_id, "s", "alpha", "alpha", state, -1, "works")


def names(events: list[Any]) -> list[tuple[str, str]]:
    return [(event.name, event.fields["state"]) for event in events]


def component(name: str, state: str) -> dict[str, Any]:
    return {"name": name, "state": state, "ready": int(state == "ready"), "restarts": 0, "reason": ""}


def test_a_node_is_news_when_it_changes_and_a_heartbeat_is_not() -> None:
    view = View()
    assert names(view.status(status(), 0.0)) == [("node", "ready")]
    assert view.status(status(load=0.7), 5.0) == []
    assert names(view.status(status(bakes=1), 10.0)) == [("node", "ready")]
    assert names(view.status(status(draining=True, bakes=1), 11.0)) == [("node", "draining")]


def test_silence_is_told_once_for_each_state_and_its_end() -> None:
    view = View()
    view.status(status(), 0.0)
    found = [names(view.tick(now)) for now in (14.0, 15.0, 16.0, 59.0, 60.0, 61.0)]
    assert found == [[], [("node", "unresponsive")], [], [], [("node", "gone")], []]
    assert names(view.status(status(), 70.0)) == [("node", "ready")]


def test_a_lost_claim_is_told_once_and_time_makes_it_no_better() -> None:
    view = View()
    view.status(status(), 0.0)
    lost = NodeInfo("alpha", "alpha", False, status(), 0, age_s=3.0)
    assert names(view.looked([lost], 3.0)) == [("node", "unresponsive")]
    assert view.tick(3.5) == []
    later = NodeInfo("alpha", "alpha", False, status(), 0, age_s=13.0)
    assert view.looked([later], 13.0) == []
    assert names(view.status(status(), 14.0)) == [("node", "ready")]


def test_what_the_bucket_holds_is_older_than_what_is_heard() -> None:
    view = View()
    view.status(status(bakes=2), 10.0)
    assert view.looked([NodeInfo("alpha", "alpha", True, status(), 0, age_s=5.0)], 11.0) == []
    assert view.nodes["alpha"].status.bakes == 2


def test_components_come_change_and_go() -> None:
    view = View()
    first = view.status(status(components=[component("one", "starting")]), 0.0)
    assert names(first) == [("node", "ready"), ("component", "starting")]
    second = view.status(status(components=[component("one", "ready")]), 1.0)
    assert ("component", "ready") in names(second)
    assert view.status(status(components=[component("one", "ready")]), 2.0) == []
    assert ("component", "removed") in names(view.status(status(), 3.0))


def test_each_serial_counts_once_and_a_rest_lasts() -> None:
    view = View()
    assert names(view.bake(said(BakeStatus, 1, kind="start"), 0.0)) == [("bake", "running")]
    assert view.bake(said(BakeStatus, 1, kind="start"), 0.1) == []
    assert view.bake(said(BakeStatus, 2), 0.2) == [], "a heartbeat that says the same"
    assert names(view.bake(said(BakePaused, 3, "rests"), 0.3)) == [("bake", "paused")]
    assert view.bake(said(BakeStatus, 4, "rests"), 0.4) == []
    assert view.bakes["s", "s-r-1"].state == "paused"
    done = said(BakeSuccess, 5, "done", final=True, outcome="success", failedsteps=[])
    assert names(view.bake(done, 0.5)) == [("bake", "succeeded")]
    view.tick(5.0)
    assert view.bakes
    view.tick(20.0)
    assert not view.bakes


def test_an_end_that_was_missed_is_told_from_the_list() -> None:
    view = View()
    view.bake(said(BakeStatus, 7), 0.0)
    assert names(view.listed([row("succeeded")], 5.0, 5.1)) == [("bake", "succeeded")]
    assert view.listed([row("succeeded")], 6.0, 6.1) == []


def test_a_list_that_is_older_than_what_was_heard_changes_nothing() -> None:
    view = View()
    view.bake(said(BakeStatus, 7), 5.5)
    assert view.listed([row("queued")], 5.0, 6.0) == []
    assert view.bakes["s", "s-r-1"].state == "running"


def test_the_list_shows_what_runs_and_not_what_ended_before() -> None:
    view = View()
    events = view.listed([row("running"), row("failed", "s-r-0")], 0.0, 0.1)
    assert [event.fields["recipeid"] for event in events] == ["s-r-1"]
    assert view.bake(said(BakeStatus, 3, "further", pct=50), 1.0), "whatever serial is heard is newer"


def test_a_bake_that_no_list_holds_any_more_is_gone() -> None:
    view = View()
    view.bake(said(BakeStatus, 7), 0.0)
    view.listed([], 5.0, 5.1)
    assert not view.bakes


def test_lines_for_people() -> None:
    view = View()
    (event,) = view.status(status(bakes=2), 0.0)
    assert line(event) == "node alpha ready: 2 bakes, 0 queued"
    (event,) = view.bake(said(BakeStatus, 1, pct=42), 0.0)
    assert line(event) == "bake s-r-1 on alpha running 42%: works"
    (event,) = view.performance(Performance(node="alpha", node_id="alpha", cpu=0.5))
    assert line(event) == "performance of alpha: cpu 0.5"
