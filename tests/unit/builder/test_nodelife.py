"""Drain, Resume and Down as values: what each request makes of the node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.builder.nodelife import Drain, asked, described, read
from bakemesh.protocol.builder.node import NodeVerb

REQUESTS = st.lists(st.tuples(st.sampled_from(list(NodeVerb)), st.none() | st.integers(0, 10**9)), max_size=8)


def after(requests: list[tuple[NodeVerb, int | None]]) -> Drain | None:
    drain = None
    for verb, timeout_ms in requests:
        drain = asked(drain, verb, "ops", timeout_ms, now=1_000, boot="b")
    return drain


@given(REQUESTS)
def test_resume_undoes_all_of_it(requests: list[tuple[NodeVerb, int | None]]) -> None:
    assert after([*requests, (NodeVerb.RESUME, None)]) is None


@given(REQUESTS)
def test_a_node_that_goes_down_does_so_until_it_is_resumed(
    requests: list[tuple[NodeVerb, int | None]],
) -> None:
    drain = after([(NodeVerb.DOWN, None), *[each for each in requests if each[0] is not NodeVerb.RESUME]])
    assert drain is not None
    assert drain.down


@given(st.sampled_from([NodeVerb.DRAIN, NodeVerb.DOWN]))
def test_a_down_that_ended_the_node_s_start_stays_so(verb: NodeVerb) -> None:
    before = Drain("next", "ops", True, None, ended=True)
    drain = asked(before, verb, "ops", None, now=1_000, boot="next")
    assert drain is not None
    assert (drain.down, drain.ended) == (True, True)
    assert read(drain.text(), "next") == drain


@given(REQUESTS, st.none() | st.integers(0, 10**9))
def test_the_last_request_has_its_own_time(
    requests: list[tuple[NodeVerb, int | None]], timeout_ms: int | None
) -> None:
    drain = after([*requests, (NodeVerb.DRAIN, timeout_ms)])
    assert drain is not None
    assert drain.deadline == (None if timeout_ms is None else 1_000 + timeout_ms * 1000)


@given(st.booleans(), st.none() | st.integers(0, 2**60))
def test_it_is_kept_for_its_own_boot_alone(down: bool, deadline: int | None) -> None:
    drain = Drain("b", "ops", down, deadline)
    assert read(drain.text(), "b") == drain
    assert read(drain.text(), "another") is None
    assert read("", "b") is None
    assert read(None, "b") is None


def test_what_it_says() -> None:
    drain = Drain("b", "ops", False, None)
    assert described(drain, None, 2) == "draining: 2 bakes to end first"
    assert described(drain, None, 0) == "draining: no bake runs"
    assert described(None, drain, 0) == "takes recipes"
    assert "was not draining" in described(None, None, 0)
