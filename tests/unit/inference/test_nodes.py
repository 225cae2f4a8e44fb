"""Who may be asked: by fresh Status, of a node that takes work and has the model; losses are told once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.inference.choosing import LOAD_S
from bakemesh.inference.nodes import SILENT_S, Nodes, load_of
from bakemesh.protocol.inference.answers import SynapseStatus


def status(node: str = "a1", *, name: str = "", serial: int = 1, **changes: Any) -> SynapseStatus:
    entries = {
        "run": "r1",
        "state": "ok",
        "waitms": 0,
        "rate": 100.0,
        "backlog": 0,
        "queued": 0,
        "bytesinflight": 0,
        "lanes": 1,
        "busy": 0,
        "models": ["m"],
        "loaded": ["m"],
        "version": "1",
    }
    return SynapseStatus(node=name or node, node_id=node, serial=serial, **{**entries, **changes})


def ids(nodes: Nodes, alias: str = "m", **without: Any) -> list[str]:
    return [node.node_id for node in nodes.candidates(alias, **without)]


def test_only_who_takes_work_and_has_it_is_asked():
    nodes = Nodes()
    for one in (
        status("a1"),
        status("b1", state="degraded"),
        status("c1", state="draining"),
        status("d1", state="down"),
        status("e1", models=["other"]),
    ):
        nodes.heard(one, 0.0)
    assert ids(nodes) == ["a1", "b1"]
    assert ids(nodes, without={"a1"}) == ["b1"]


def test_silence_is_told_once_and_a_status_ends_it():
    nodes = Nodes()
    nodes.heard(status(), 0.0)
    assert nodes.fallen_silent(SILENT_S) == []
    assert nodes.fallen_silent(SILENT_S + 0.1) == ["a1"]
    assert nodes.fallen_silent(SILENT_S + 0.2) == []
    assert ids(nodes) == []
    assert nodes.all() == []
    nodes.heard(status(serial=2), 20.0)
    assert ids(nodes) == ["a1"]


def test_a_time_without_a_link_is_no_silence():
    nodes = Nodes()
    nodes.heard(status(), 0.0)
    nodes.resumed(100.0)
    assert nodes.fallen_silent(101.0) == []
    assert nodes.fallen_silent(100.0 + SILENT_S + 0.1) == ["a1"]


def test_another_run_is_told_and_an_older_status_is_not_taken():
    nodes = Nodes()
    assert nodes.heard(status(serial=5), 0.0) is None
    assert nodes.heard(status(serial=4, state="down"), 1.0) is None
    assert ids(nodes) == ["a1"]
    assert nodes.heard(status(serial=0, run="r2"), 2.0) == "r1"
    assert nodes.heard(status(serial=1, run="r2"), 3.0) is None


def test_who_does_not_listen_is_left_out_until_he_speaks():
    nodes = Nodes()
    nodes.heard(status(), 0.0)
    nodes.unreachable("a1")
    nodes.unreachable("nobody")
    assert ids(nodes) == []
    nodes.heard(status(serial=2), 0.1)
    assert ids(nodes) == ["a1"]


def test_a_name_finds_its_nodes_and_an_id_goes_first():
    nodes = Nodes()
    for one in (status("a1", name="alpha"), status("b1", name="a1"), status("b2", name="beta"),
                status("b3", name="beta")):  # fmt: skip
        nodes.heard(one, 0.0)
    assert [node.node_id for node in nodes.named("alpha")] == ["a1"]
    assert [node.node_id for node in nodes.named("a1")] == ["a1"]
    assert [node.node_id for node in nodes.named("beta")] == ["b2", "b3"]
    assert nodes.named("gamma") == []


def test_why_nobody_can_be_asked_says_what_there_is():
    nodes = Nodes()
    assert nodes.why_none("m") == (False, nodes.why_none("x")[1])
    nodes.heard(status("a1", name="alpha", state="draining"), 0.0)
    assert nodes.why_none("m") == (False, "no node takes work for model 'm' now: alpha=a1 is draining")
    assert nodes.why_none("x") == (True, "no node has a model 'x'; on alpha=a1 there are: m")


def test_a_model_that_must_be_loaded_first_counts():
    nodes = Nodes()
    nodes.heard(status(loaded=[]), 0.0)
    node = nodes.candidates("m")[0]
    assert load_of(node, "m", 0.0, bulk=False).wait_s == LOAD_S


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.sampled_from(["ok", "draining"]),
                          st.floats(0, 10)), max_size=30))  # fmt: skip
def test_a_candidate_always_spoke_within_six_seconds_and_last_said_that_it_works(events):
    nodes, now, last = Nodes(), 0.0, {}
    for serial, (node, run, state, passed) in enumerate(events):
        now += passed
        nodes.fallen_silent(now)
        nodes.heard(status(node, run=f"r{run}", state=state, serial=serial), now)
        last[node] = (now, state)
        for each in nodes.candidates("m"):
            at, said = last[each.node_id]
            assert now - at <= SILENT_S
            assert said == "ok"


def test_a_model_that_was_taken_in_is_there_at_once():
    nodes = Nodes()
    nodes.has("nobody", "new")
    nodes.heard(status(), 0.0)
    nodes.has("a1", "new")
    assert ids(nodes, "new") == ["a1"]
    assert ids(nodes) == ["a1"]
