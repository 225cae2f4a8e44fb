"""When a node counts as drained or down, what a cohort's bakes come to, and lines that carry a mark."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.cli.cohorts import Marked, verdict
from bakemesh.cli.departing import Seen, left, step
from bakemesh.cli.verbs.components import ago
from bakemesh.protocol.builder.messages import SystemStatus
from bakemesh.supervisor.nodes import NodeInfo


def node(alive: bool = True, age_s: float = 0.0, **more: Any) -> NodeInfo:
    values: dict[str, Any] = {
        "boot": "b", "bakes": 0, "queued": 0, "load": 0.0, "draining": False, "configcomplete": True,
        "version": "1", "protocols": [], "stepkinds": [], "components": [],
    }  # fmt: skip
    return NodeInfo("a", "a", alive, SystemStatus(node="a", node_id="a", **(values | more)), 0, age_s)


def told(nodes: list[NodeInfo | None], *, down: bool) -> list[str | None]:
    seen, found = Seen(), []
    for each in nodes:
        seen, verdict_ = step(seen, each, down=down)
        found.append(verdict_)
    return found


BUSY, EMPTY = node(draining=True, bakes=1), node(draining=True)


def test_drained_once_nothing_runs_and_not_by_what_was_said_before_the_drain() -> None:
    assert told([node(), BUSY, EMPTY], down=False) == [None, None, "done"]


def test_down_once_its_claim_is_gone_too() -> None:
    assert told([node(), BUSY, EMPTY, node(alive=False, draining=True)], down=True) == [
        None, None, None, "done",
    ]  # fmt: skip


def test_somebody_resumed_it() -> None:
    assert told([BUSY, node()], down=False) == [None, "resumed"]


def test_a_node_that_dies_before_it_was_drained_is_lost() -> None:
    dying = node(alive=False, draining=True, bakes=1)
    assert told([BUSY, dying], down=True) == [None, None], "its Builder may come back"
    gone = node(alive=False, age_s=61.0, draining=True, bakes=1)
    assert told([BUSY, gone], down=True) == [None, "lost"]
    assert told([None], down=False) == ["lost"]


def test_what_is_left_in_words() -> None:
    rows = [{"name": "one", "state": "ready"}, {"name": "two", "state": "stopped"}]
    assert left(node(bakes=2, queued=1, components=rows).status) == "2 bakes, 1 queued, 1 component (one)"
    assert left(node().status) == "nothing runs"


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([], 0), ([0, 0], 0), ([0, 3], 3), ([3, 5], 5), ([5, 2], 2), ([2, 1, 0], 1), ([1, 4], 4),
        ([0, 77], 1),
    ],
)  # fmt: skip
def test_the_worst_of_all_members_counts(codes: list[int], code: int) -> None:
    assert verdict(codes) == code


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_marked_lines_hold_every_byte_however_they_are_cut(parts: list[bytes]) -> None:
    target = io.BytesIO()
    marked = Marked(target, b"> ")
    for part in parts:
        marked.write(part)
    marked.finish()
    whole = b"".join(parts)
    lines = target.getvalue().split(b"\n")[:-1]
    assert all(each.startswith(b"> ") for each in lines)
    written = b"".join(each[2:] + b"\n" for each in lines)
    assert written == (whole if whole.endswith(b"\n") or not whole else whole + b"\n")


def test_a_time_in_its_largest_unit() -> None:
    assert [ago(each) for each in (-5, 0.5, 59, 60, 7300, 200_000)] == ["0s", "0s", "59s", "1m", "2h", "2d"]
