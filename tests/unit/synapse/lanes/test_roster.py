"""What is known of lanes, by what they say and by the module's own requests: the clock is turned by hand."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.inference.lanes import LaneStatus
from bakemesh.synapse.lanes.roster import LOST_S, SILENT_S, Roster
from bakemesh.workerpool import ModelKey

LANE = "gamma/l-w0"
KEY = ModelKey("ab" * 32, "fake", (("dims", "8"),))


def status(serial: int, state: str = "idle", *, run: str = "r", **more: Any) -> LaneStatus:
    return LaneStatus(
        node="G", node_id="gamma", lane="l-w0", run=run, serial=serial, state=state, models=[], **more
    )


def idle(roster: Roster) -> bool:
    known = roster.get(LANE)
    return known is not None and known.view(0.0, "gamma").idle


def test_a_lane_is_what_its_status_says() -> None:
    roster = Roster()
    model = {"digest": f"sha256:{KEY.digest}", "format": "fake", "config": {"dims": "8"}}
    told = status(1, types=["GENERATE_STREAM"], degraded=True, engine="fake 1", rss_mb=3.5).model_copy(
        update={"models": [{**model, "loaded": 1, "quarantined": 0}]}
    )
    assert roster.hear(told, "l", 10.0) is None
    known = roster.get(LANE)
    assert known is not None
    view = known.view(11.0, "gamma")
    assert (view.name, view.node_id, view.local, view.up, view.idle) == (LANE, "gamma", True, True, True)
    assert (view.loaded, view.refused, view.types) == (frozenset({KEY}), frozenset(), ("GENERATE_STREAM",))
    assert (view.degraded, view.engine, view.rss_mb, view.stamp_age_s) == (True, "fake 1", 3.5, 1.0)
    assert not known.view(11.0, "alpha").local


def test_an_older_status_changes_nothing() -> None:
    roster = Roster()
    roster.hear(status(5, "busy"), "l", 0.0)
    roster.hear(status(4, "idle"), "l", 1.0)
    assert not idle(roster)


def test_the_own_request_occupies_the_lane_and_its_answer_frees_it() -> None:
    roster = Roster()
    roster.hear(status(1), "l", 0.0)
    roster.sent(LANE, 1.0)
    assert not idle(roster)
    roster.hear(status(2, "idle"), "l", 1.1)  # said before the lane took it
    assert not idle(roster)
    roster.ended(LANE, "idle")
    assert idle(roster)


def test_another_run_and_a_closed_lane_give_up_what_was_there() -> None:
    roster = Roster()
    roster.hear(status(7), "l", 0.0)
    roster.sent(LANE, 0.5)
    assert "started anew" in (roster.hear(status(1, run="s"), "l", 1.0) or "")
    assert idle(roster)
    assert "ended" in (roster.hear(status(2, "closed", run="s"), "l", 2.0) or "")
    assert roster.get(LANE) is None


def test_silence_forgets_a_lane() -> None:
    roster = Roster()
    roster.hear(status(1), "l", 0.0)
    assert roster.silent(SILENT_S) == []
    assert roster.silent(SILENT_S + 0.1) == [LANE]
    assert len(roster) == 0


@given(
    age=st.floats(0, 100),
    busy=st.none() | st.floats(0, 100),
)
def test_a_request_is_lost_only_where_the_lane_cannot_have_it(age: float, busy: float | None) -> None:
    roster = Roster()
    roster.hear(status(1), "l", 0.0)
    roster.sent(LANE, 0.0)
    told = status(2, "idle" if busy is None else "busy", busyms=None if busy is None else int(busy * 1000))
    lost = roster.hear(told, "l", age)
    if age <= LOST_S or (busy is not None and busy >= age - LOST_S):
        assert lost is None
        assert not idle(roster)
    if busy is None and age > LOST_S + 0.01:
        assert lost is not None
        assert idle(roster)


def test_after_the_link_was_lost_nobody_is_idle_until_heard_again() -> None:
    roster = Roster()
    roster.hear(status(1), "l", 0.0)
    roster.unheard()
    assert not idle(roster)
    roster.hear(status(2), "l", 1.0)
    assert idle(roster)


def test_only_the_lanes_of_the_list_are_known() -> None:
    for only, known in (((), 1), (("gamma",), 1), ((LANE,), 1), (("delta",), 0), (("gamma/l-w1",), 0)):
        roster = Roster(only)
        roster.hear(status(1), "l", 0.0)
        assert len(roster) == known


def test_a_model_of_an_unknown_form_is_left_out() -> None:
    roster = Roster()
    odd = [{"digest": 5}, {"digest": "x", "config": []}, {"digest": "sha256:AB", "loaded": 1}]
    roster.hear(status(1).model_copy(update={"models": odd}), "l", 0.0)
    known = roster.get(LANE)
    assert known is not None
    assert {key.digest for key in known.loaded} == {"ab"}


def test_what_requests_tell_of_models_is_kept_until_the_next_status() -> None:
    roster = Roster()
    roster.hear(status(1), "l", 0.0)
    roster.has(LANE, KEY, loaded=True)
    known = roster.get(LANE)
    assert known is not None
    assert known.loaded == {KEY}
    roster.has(LANE, KEY, loaded=False)
    assert known.loaded == set()
    known.refused.add(KEY)
    roster.free(("gamma", "other"), KEY)
    assert known.refused == {KEY}
    roster.free(("gamma", "r"), KEY)
    assert known.refused == set()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("hear"), st.integers(0, 9), st.sampled_from(["idle", "busy", "crashed"])),
            st.tuples(st.just("sent"), st.just(0), st.just("")),
            st.tuples(st.just("ended"), st.just(0), st.sampled_from(["idle", "unknown"])),
            st.tuples(st.just("unheard"), st.just(0), st.just("")),
        ),
        max_size=30,
    )
)
def test_a_lane_with_a_request_of_this_module_is_never_idle(steps: list[tuple[str, int, str]]) -> None:
    roster, there = Roster(), False
    for at, (what, serial, state) in enumerate(steps):
        now = at * 0.01
        if what == "hear":
            assert roster.hear(status(serial, state), "l", now) is None
        elif what == "sent" and idle(roster):
            roster.sent(LANE, now)
            there = True
        elif what == "ended":
            roster.ended(LANE, state)
            there = False
        elif what == "unheard":
            roster.unheard()
        if there:
            assert not idle(roster)
