"""Which worker runs a request."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from bakemesh.workerpool.placing import Answer, Wanted, choose

NAMES = ["w0", "w1", "w2"]


@dataclass(frozen=True)
class Worker:
    name: str
    up: bool
    idle: bool
    refs: frozenset[str] = frozenset()


seats = st.lists(
    st.builds(
        Worker,
        name=st.sampled_from(NAMES),
        up=st.just(True),
        idle=st.booleans(),
        refs=st.frozensets(st.sampled_from("ab")),
    ),
    min_size=1,
    unique_by=lambda seat: seat.name,
)
wanted = st.builds(
    Wanted,
    model=st.sampled_from(["a", "b"]),
    lane=st.none() | st.sampled_from(NAMES),
    avoid=st.none() | st.sampled_from(NAMES),
)
loading = st.frozensets(st.sampled_from("ab"))


@given(wanted, seats, loading)
def test_only_an_idle_worker_that_may_run_it_is_chosen(wanted, seats, loading):
    found = choose(wanted, seats, loading)
    if isinstance(found, Answer):
        return
    assert found in seats
    assert found.idle
    assert wanted.lane in (None, found.name)
    if wanted.lane is None and found.name == wanted.avoid:
        assert len(seats) == 1


@given(wanted, seats, loading)
def test_never_two_loads_of_a_model_at_a_time(wanted, seats, loading):
    found = choose(wanted, seats, loading)
    if not isinstance(found, Answer) and wanted.model in loading:
        assert wanted.model in found.refs


@given(wanted, seats)
def test_an_idle_worker_that_has_the_model_comes_first(wanted, seats):
    found = choose(wanted, seats, ())
    usable = [
        seat
        for seat in seats
        if seat.idle
        and (wanted.lane == seat.name if wanted.lane else seat.name != wanted.avoid or len(seats) == 1)
    ]
    if any(wanted.model in seat.refs for seat in usable):
        assert wanted.model in found.refs
    elif usable:
        assert found in usable


def test_a_lane_that_does_not_exist_is_said_and_not_waited_for():
    assert choose(Wanted("a", lane="w9"), [Worker("w0", True, True)], ()) is Answer.NO_SUCH_LANE


def test_the_one_that_crashed_is_taken_again_where_no_other_is_up():
    here, gone = Worker("w0", True, True), Worker("w1", False, False)
    assert choose(Wanted("a", avoid="w0"), [here, gone], ()) is here
