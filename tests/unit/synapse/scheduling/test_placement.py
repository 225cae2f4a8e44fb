"""Which lane, which model where: one decision for any state of the lanes, and none of the forbidden ones."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.synapse.lanes.base import LaneFailed, LaneView
from bakemesh.synapse.scheduling.failing import Then, then, told
from bakemesh.synapse.scheduling.placement import (
    Ground,
    Load,
    Prompt,
    Run,
    Unload,
    Wait,
    Wanted,
    Why,
    plan,
    shared_prefix,
)
from bakemesh.workerpool.models import ModelKey

A, B, C = (ModelKey(name, "fake") for name in "abc")
MODELS = st.frozensets(st.sampled_from([A, B, C]))


def lane(name: str, **values) -> LaneView:
    """One that is idle, but for what is said."""
    return LaneView(**{"name": name, "node_id": "n", "local": True, "up": True, "idle": True, **values})


VIEWS = st.lists(
    st.builds(
        lane,
        st.just(""),
        up=st.booleans(),
        idle=st.booleans(),
        local=st.booleans(),
        degraded=st.booleans(),
        loaded=MODELS,
        refused=MODELS,
        types=st.sampled_from([(), ("S",)]),
    ),
    max_size=5,
).map(lambda views: [replace(view, name=f"l{number}") for number, view in enumerate(views)])


@given(
    VIEWS,
    st.sets(st.sampled_from(["l0", "l1", "l2"])),
    st.dictionaries(st.sampled_from([A, B]), st.sampled_from(["l0", "l1"])),
    st.builds(
        Wanted,
        st.just(A),
        needs=st.sampled_from([None, "S"]),
        avoid=st.sampled_from([None, "l0"]),
        backlog_s=st.floats(0, 10),
        load_s=st.floats(0, 1),
    ),
    st.sampled_from([None, 150, 250, 1000]),
    st.floats(0, 3),
    st.booleans(),
)
def test_a_decision_is_always_one_that_may_be(views, taken, loading, wanted, memory, demand, held):
    sizes = {A: 100, B: 100, C: 100}
    ground = Ground(
        views,
        taken=taken,
        loading=loading,
        demand=lambda model: demand,
        sizes=sizes,
        memory=memory,
        held=held,
        waiting=frozenset([A, B]),
    )
    by_name = {view.name: view for view in views}
    up = [view for view in views if view.up]
    fit = [view for view in up if (wanted.needs in (None, *view.types)) and A not in view.refused]
    decision = plan(wanted, ground)
    match decision:
        case Run(name):
            view = by_name[name]
            assert view in fit
            assert view.idle
            assert name not in taken
            assert A in view.loaded
            assert not view.degraded or all(each.degraded for each in fit)
        case Load(name, spread):
            view = by_name[name]
            assert view in fit
            assert view.idle
            assert name not in taken
            assert A not in view.loaded
            assert A not in loading
            assert spread or not held or not view.local or memory is None
            if memory is not None and view.local:
                resident = {(each.name, model) for each in up if each.local for model in each.loaded}
                resident |= {(at, model) for model, at in loading.items() if by_name.get(at, view).local}
                resident = {pair for pair in resident if pair[0] in by_name}
                assert sum(sizes[model] for _, model in resident) + sizes[A] <= memory
        case Unload(name, model):
            view = by_name[name]
            assert view.idle
            assert view.local
            assert name not in taken
            assert model != A
            assert model in view.loaded
            assert not any(A in each.loaded for each in fit if not each.degraded)
        case Wait(Why.NONE_UP):
            assert not up
        case Wait(Why.INCAPABLE):
            assert not any(wanted.needs in view.types for view in up)
        case Wait(Why.REFUSED):
            assert not fit
        case Wait():
            ready = [view for view in fit if view.idle and view.name not in taken and A in view.loaded]
            others = [view for view in ready if view.name != wanted.avoid and not view.degraded]
            assert not others


def test_a_lane_that_has_it_then_one_whose_models_are_needed_least():
    views = [lane("l0"), lane("l1", loaded=frozenset([A])), lane("l2")]
    assert plan(Wanted(A), Ground(views)) == Run("l1")
    views = [lane("l0", loaded=frozenset([B])), lane("l1", loaded=frozenset([C]))]
    ground = Ground(views, demand=lambda model: {B: 0.9, C: 0.1}.get(model, 0.0))
    assert plan(Wanted(A), ground) == Load("l1")


def test_while_it_is_loaded_nobody_else_loads_it():
    views = [lane("l0"), lane("l1", idle=False)]
    assert plan(Wanted(A), Ground(views, loading={A: "l1"})) == Wait(Why.LOADING)


@pytest.mark.parametrize(
    ("demand", "backlog_s", "load_s", "more"),
    [(0.2, 0.1, 1.0, False), (0.9, 0.0, 1.0, True), (0.2, 2.0, 1.0, True), (0.2, 2.0, 0.0, False)],
)
def test_a_further_copy_is_made_where_it_is_worth_it(demand, backlog_s, load_s, more):
    views = [lane("l0", idle=False, loaded=frozenset([A])), lane("l1")]
    wanted = Wanted(A, backlog_s=backlog_s, load_s=load_s)
    found = plan(wanted, Ground(views, demand=lambda model: demand))
    assert found == (Load("l1", spread=True) if more else Wait(Why.BUSY))


def test_room_is_made_by_what_nobody_waits_for_then_by_what_ran_longest_ago():
    views = [lane("l0", loaded=frozenset([B])), lane("l1", loaded=frozenset([C]))]
    sizes = {A: 1, B: 1, C: 1}
    used = {("l0", B): 1.0, ("l1", C): 2.0}
    ground = Ground(views, used=used, sizes=sizes, memory=2)
    assert plan(Wanted(A), ground) == Unload("l0", B)
    ground.waiting = frozenset([A, B])
    assert plan(Wanted(A), ground) == Unload("l1", C)
    ground.taken = {"l0", "l1"}
    assert plan(Wanted(A), ground) == Wait(Why.BUSY)


def test_a_further_copy_costs_nobody_his_model_and_memory_of_other_nodes_is_not_ours():
    views = [lane("l0", idle=False, loaded=frozenset([A])), lane("l1", loaded=frozenset([B]))]
    ground = Ground(views, demand=lambda model: 1.0, sizes={A: 1, B: 1}, memory=2)
    assert plan(Wanted(A), ground) == Wait(Why.BUSY)
    views.append(lane("far", local=False, loaded=frozenset([B, C])))
    assert plan(Wanted(A), ground) in (Load("far", spread=True), Wait(Why.BUSY))
    ground = Ground([lane("far", local=False, loaded=frozenset([B, C]))], sizes={A: 9}, memory=2)
    assert plan(Wanted(A), ground) == Load("far")


def test_degraded_and_shunned_lanes_and_the_one_that_crashed_are_used_where_there_is_no_other():
    loaded = frozenset([A])
    worse, better = lane("l0", loaded=loaded, degraded=True), lane("l1", loaded=loaded)
    assert plan(Wanted(A), Ground([worse, better])) == Run("l1")
    assert plan(Wanted(A), Ground([worse])) == Run("l0")
    first, second = lane("l0", loaded=loaded), lane("l1", loaded=loaded)
    assert plan(Wanted(A, avoid="l0"), Ground([first, second])) == Run("l1")
    assert plan(Wanted(A, avoid="l0"), Ground([first])) == Run("l0")
    assert plan(Wanted(A), Ground([first, second], shunned={("l0", A)})) == Run("l1")
    assert plan(Wanted(A), Ground([first], shunned={("l0", A)})) == Run("l0")
    assert plan(Wanted(A), Ground([first], refused={("l0", A)})) == Wait(Why.REFUSED)


def test_a_chat_goes_where_most_of_it_was_read_and_a_new_one_where_the_oldest_lies():
    loaded = frozenset([A])
    views = [lane(name, loaded=loaded) for name in ("l0", "l1", "l2")]

    def ids(*tokens):
        return array("i", tokens).tobytes()

    prompts = {
        "l0": Prompt(A, ids(*range(100), 7), 3.0),
        "l1": Prompt(A, ids(*range(60), 7), 1.0),
        "l2": Prompt(A, ids(*range(500, 600)), 2.0, b"s"),
    }
    ground = Ground(views, prompts=prompts)
    assert plan(Wanted(A, prompt=ids(*range(120))), ground) == Run("l0")
    assert plan(Wanted(A, prompt=ids(*range(60), 7, 8)), ground) == Run("l1")
    assert plan(Wanted(A, prompt=ids(*range(900, 950))), ground) == Run("l1")
    assert plan(Wanted(A, prompt=ids(*range(900, 950)), session=b"s"), ground) == Run("l2")


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40))
def test_the_shared_prefix_is_as_long_as_it_is(one, other):
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    assert shared_prefix(array("i", one).tobytes(), memoryview(array("i", other)).cast("B")) == 4 * length


@given(st.sampled_from(list(Code)), st.booleans(), st.booleans(), st.integers(0, 1), st.booleans())
def test_only_a_crash_is_repeated_once_and_never_what_was_seen(code, crashed, begun, attempt, seen):
    failed = LaneFailed(error_of(code, "x"), crashed=crashed, begun=begun)
    found = then(failed, attempt=attempt, seen=seen)
    if found is Then.REPEAT:
        assert crashed
        assert attempt == 0
        assert not seen
    if code == Code.LANE_BUSY:
        assert found is Then.ELSEWHERE
    if code == Code.ENGINE_CRASHED and crashed and attempt == 0 and not seen:
        assert found is Then.REPEAT
    assert told(failed, seen=seen).safe_to_retry == (not seen)


def test_a_lane_that_computes_too_little_on_its_accelerator_is_not_used_for_the_model():
    slow = lane("w0", loaded=frozenset({A}), placement_share=0.4)
    silent, fast = (
        lane("w1", loaded=frozenset({A})),
        lane("w2", loaded=frozenset({A, B}), placement_share=0.9),
    )
    wanted = Wanted(A)
    assert plan(wanted, Ground([slow, fast], least_shares={A: 0.5})) == Run("w2")
    assert plan(wanted, Ground([slow, silent], least_shares={A: 0.5})) == Run("w1")
    assert plan(wanted, Ground([slow], least_shares={A: 0.5})) == Wait(Why.MISPLACED)
    assert plan(wanted, Ground([slow], least_shares={B: 0.5})) == Run("w0")
