"""Components as they are reported, cohorts' sums, and notices that come faster than they are read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.builder.messages import Performance, Result
from bakemesh.supervisor import AmbiguousComponent, Closed, ComponentUnknown, Notice, NoticeReader
from bakemesh.supervisor.cohort import summed
from bakemesh.supervisor.operate import component, find_component

ROW = {
    "name": "indexer", "state": "backoff", "ready": 0, "restarts": 2, "reason": "exit code 1", "since": 5,
    "pid": 0, "kind": "script", "owner": "boss", "digest": "d", "watch": {"depth": "7"},
}  # fmt: skip


def test_a_row_of_system_status() -> None:
    found = component(ROW, "alpha", "a1")
    assert (found.name, found.state, found.ready, found.restarts, found.pid) == (
        "indexer", "backoff", False, 2, None,
    )  # fmt: skip
    assert (found.node, found.node_id, found.watch) == ("alpha", "a1", {"depth": "7"})


@given(
    st.dictionaries(st.sampled_from(list(ROW)), st.none() | st.integers() | st.text() | st.lists(st.text()))
)
def test_a_row_of_another_version_is_read_as_far_as_it_goes(row: dict[str, Any]) -> None:
    component(row, "alpha", "a1")


def test_a_component_is_found_by_name_and_node() -> None:
    here, there = component(ROW, "alpha", "a1"), component(ROW, "beta", "b1")
    assert find_component([here, there], "indexer", "b1") is there
    with pytest.raises(AmbiguousComponent, match="a1, b1"):
        find_component([here, there], "indexer", None)
    with pytest.raises(ComponentUnknown, match="indexer on alpha"):
        find_component([here], "nothing", None)


def test_every_member_is_in_one_of_the_three() -> None:
    yes = Result(verb="Cohort", accepted=True, code="ok", summary="")
    no = Result(verb="Cohort", accepted=False, code="unknown_cohort", summary="")
    summary = summed({"a": yes, "b": no, "c": None, "d": yes})
    assert (list(summary.accepted), list(summary.refused), summary.silent) == (["a", "d"], ["b"], ("c",))
    assert str(summary) == "2 accepted, 1 refused, 1 silent"


def notice(number: int) -> Notice:
    said = Performance(node="a", node_id="a", load=float(number))
    return Notice("a", "builder-a", said)


async def test_a_slow_reader_loses_the_oldest_and_is_told_how_many() -> None:
    reader = NoticeReader(kept=3)
    for number in range(5):
        reader.offer(notice(number))
    reader.end(Closed("over"))
    assert [await anext(reader) for _ in range(3)] == [notice(number) for number in (2, 3, 4)]
    with pytest.raises(Closed):
        await anext(reader)
    assert reader.dropped == 2


async def test_an_iteration_that_waits_ends_when_it_is_closed() -> None:
    reader = NoticeReader()
    waiting = asyncio.create_task(anext(reader, None))
    await asyncio.sleep(0)
    await reader.aclose()
    assert await waiting is None
