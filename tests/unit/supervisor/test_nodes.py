"""Looking a node up, and choosing the least loaded."""

from __future__ import annotations

from typing import Any

import pytest

from bakemesh.protocol.builder.messages import SystemStatus
from bakemesh.protocol.message import encode
from bakemesh.supervisor.errors import AmbiguousNode, NodeUnknown, NoNodeAvailable
from bakemesh.supervisor.nodes import NodeInfo, by_load, find, is_drained, node_state, read_nodes
from support.statuses import system_status


def stored(*statuses: SystemStatus, dead: tuple[str, ...] = ()) -> dict[str, bytes]:
    entries = {
        one.node_id: encode(one, id=bytes(16), created=1, sender=f"builder@{one.node_id}") for one in statuses
    }
    claims = {f"{one.node_id}.claim": b"x" for one in statuses if one.node_id not in dead}
    return entries | claims | {"lock.sources": b"x"}


def nodes(*statuses: SystemStatus, dead: tuple[str, ...] = ()) -> list[NodeInfo]:
    return read_nodes(stored(*statuses, dead=dead))


ALPHA = system_status("alpha", "a1")
BETA = system_status("beta", "b1")


def test_claims_and_locks_are_no_nodes_and_a_claim_means_alive() -> None:
    found = nodes(ALPHA, BETA, dead=("b1",))
    assert [(one.name, one.node_id, one.alive) for one in found] == [
        ("alpha", "a1", True),
        ("beta", "b1", False),
    ]


def test_rubbish_and_a_status_under_anothers_key_are_left_out() -> None:
    entries = stored(ALPHA) | {"c1": b"\x00rubbish", "d1": stored(BETA)["b1"]}
    assert [one.node_id for one in read_nodes(entries)] == ["a1"]


def test_by_name_and_by_id_and_the_id_wins() -> None:
    twisted = nodes(system_status("b1", "x9"), BETA)
    assert find(nodes(ALPHA, BETA), "beta").node_id == "b1"
    assert find(nodes(ALPHA, BETA), "a1").name == "alpha"
    assert find(twisted, "b1").name == "beta"


def test_an_unknown_node_lists_the_known_ones() -> None:
    with pytest.raises(NodeUnknown, match=r"'gamma'.*alpha=a1, beta=b1"):
        find(nodes(ALPHA, BETA), "gamma")
    with pytest.raises(NodeUnknown, match="no node has reported yet"):
        find([], "gamma")


def test_a_name_used_twice_is_ambiguous_unless_one_is_alive() -> None:
    twice = (BETA, system_status("beta", "b2"))
    with pytest.raises(AmbiguousNode, match="b1, b2"):
        find(nodes(*twice), "beta")
    assert find(nodes(*twice, dead=("b1",)), "beta").node_id == "b2"


def test_the_least_loaded_comes_first() -> None:
    busy = system_status("alpha", "a1", bakes=3, load=0.1)
    queued = system_status("beta", "b1", bakes=1, queued=9)
    loaded = system_status("gamma", "c1", load=2.5)
    assert [one.name for one in by_load(nodes(busy, queued, loaded))] == ["gamma", "alpha", "beta"]


def test_what_was_sent_since_the_last_report_counts() -> None:
    assert by_load(nodes(ALPHA, BETA), {"a1": 1})[0].name == "beta"


def test_draining_and_dead_nodes_take_nothing() -> None:
    drains = system_status("alpha", "a1", draining=True)
    assert [one.name for one in by_load(nodes(drains, BETA))] == ["beta"]
    with pytest.raises(NoNodeAvailable, match=r"alpha=a1 drained, beta=b1 unresponsive"):
        by_load(nodes(drains, BETA, dead=("b1",)))


# -- states, by one clock


@pytest.mark.parametrize(
    ("age_s", "claimed", "draining", "state"),
    [
        (0.0, True, False, "ready"),
        (14.9, True, False, "ready"),
        (15.0, True, False, "unresponsive"),
        (1.0, False, False, "unresponsive"),
        (1.0, None, False, "ready"),
        (59.9, False, True, "unresponsive"),
        (60.0, True, False, "gone"),
        (60.0, False, True, "gone"),
        (1.0, True, True, "drained"),
    ],
)
def test_states(age_s: float, claimed: bool | None, draining: bool, state: str) -> None:
    assert node_state(system_status("a", "a", draining=draining), age_s, claimed=claimed) == state


@pytest.mark.parametrize(
    "more",
    [
        {"bakes": 1},
        {"queued": 1},
        {"components": [{"name": "c", "state": "ready"}]},
        {"components": [{"name": "c", "state": "stopping"}]},
        {"components": [{"name": "c", "state": "quarantined"}]},
    ],
)
def test_a_node_is_drained_once_nothing_runs(more: dict[str, Any]) -> None:
    assert not is_drained(system_status("a", "a", draining=True, **more))


def test_components_at_rest_keep_no_node_from_being_drained() -> None:
    resting = [{"name": "c", "state": "stopped"}, {"name": "d", "state": "ended"}]
    assert is_drained(system_status("a", "a", draining=True, components=resting))
    assert not is_drained(system_status("a", "a", components=resting)), "it was not asked to"


def test_ages_are_those_of_the_entries() -> None:
    (alpha,) = read_nodes(stored(ALPHA), {"a1": 20.0})
    assert (alpha.age_s, alpha.state) == (20.0, "unresponsive")
