"""A Startup Supervisor's decisions: what must hold in any history, and the stories of the seed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bakemesh.startup import core
from bakemesh.startup.moving import AWAY_S
from bakemesh.startup.state import (
    Announce,
    BroughtUp,
    Cancel,
    Dispatch,
    Failed,
    Follow,
    Held,
    Missing,
    Reconcile,
    Remove,
    Tick,
    Unheard,
)
from support.startup_world import OWN, World, goal, spec

A = spec("A", {"one": "1", "two": "1"}, beta={"far": "1"})
B = spec("B", {"one": "1", "two": "2", "three": "1"}, gamma={"far": "1"})
C = spec("C", {}, beta={"far": "1"})
SPECS = (A, B, C)
NODES = st.sampled_from([OWN, "beta", "gamma"])


def of(world: World, kind: type) -> list:
    return [effect for effect in world.effects if isinstance(effect, kind)]


def started(wanted=A) -> World:
    world = World()
    world.offer(wanted)
    return world


def test_nothing_is_done_before_the_own_node_is_complete():
    world = started()
    world.report("beta")
    world.report(OWN, complete=False)
    assert not world.effects
    world.report(OWN)
    assert [effect.node_id for effect in of(world, Dispatch)] == [OWN, "beta"]


def test_local_at_once_peers_when_they_are_heard_of():
    world = started()
    world.report(OWN)
    assert [effect.node_id for effect in of(world, Dispatch)] == [OWN]
    assert of(world, Missing) == [Missing("beta", 1)]
    world.quiet()
    assert len(of(world, Announce)) == 1
    world.report("beta")
    world.quiet()
    assert [effect.node_id for effect in of(world, Dispatch)] == [OWN, "beta"]
    assert len(of(world, Announce)) == 1
    world.check_all_is_there()


def test_ready_only_after_the_own_bring_up_whatever_the_peers_do():
    world = started()
    world.report_all()
    while world.due:
        world.act()
    (peer,) = [recipe for recipe, each in world.recipes.items() if each.node_id == "beta"]
    (own,) = [recipe for recipe, each in world.recipes.items() if each.node_id == OWN]
    world.bake(peer, True)
    world.hear(peer)
    assert not of(world, Announce)
    world.bake(own, True)
    world.hear(own)
    assert world.effects[-2:] == [
        BroughtUp(OWN, "alpha", ("one", "two")),
        Announce("1", "demo", "A", ("one", "two")),
    ]


def test_a_psyspec_without_local_modules_is_ready_at_once():
    world = started(spec("P", {}, beta={"far": "1"}))
    world.report(OWN)
    assert len(of(world, Announce)) == 1


def test_a_failed_bring_up_is_tried_again_after_growing_pauses():
    world = started(spec("L", {"one": "1"}))
    world.report(OWN)
    pauses = []
    for _ in range(9):
        while world.due:
            world.act()
        (recipe,) = world.followed
        world.bake(recipe, False)
        world.hear(recipe)
        pauses.append(of(world, Failed)[-1].pause_s)
        due = core.next_due(world.state)
        assert due is not None
        world.take(Tick(world.now + pauses[-1] * 0.9))
        assert not of(world, Dispatch)[len(pauses) :]
        world.now = due
        world.take(Tick(world.now))
    assert pauses == sorted(pauses)
    assert pauses[0] < 1.01
    assert pauses[-1] == pauses[-2] <= core.MOST_S
    assert len({core.pause_s(3, draw / 10) for draw in range(10)}) == 10
    world.quiet()
    world.check_all_is_there()


def test_a_peer_that_comes_again_is_brought_up_again_at_once_and_nobody_else():
    world = started()
    world.report_all()
    world.quiet()
    before = len(of(world, Dispatch))
    world.reboot("beta")
    world.report_all()
    world.quiet()
    assert [effect.node_id for effect in of(world, Dispatch)[before:]] == ["beta"]
    world.check_all_is_there()


def test_a_new_boot_of_the_own_node_does_both_again():
    world = started()
    world.report_all()
    world.quiet()
    world.reboot(OWN)
    world.crash()
    world.offer(A)
    world.report_all()
    world.quiet()
    assert world.announced == ["1", "2"]
    world.check_all_is_there()


def test_a_changed_psyspec_removes_adds_and_restarts_and_leaves_the_rest():
    world = started()
    world.report_all()
    world.quiet()
    before = len(world.effects)
    world.give(B)
    world.quiet()
    later = world.effects[before:]
    assert [effect for effect in later if isinstance(effect, Remove)] == [Remove("beta", "far")]
    dispatched = {effect.node_id: dict(effect.parts) for effect in later if isinstance(effect, Dispatch)}
    assert dispatched == {OWN: {"two": "2", "three": "1"}, "gamma": {"far": "1"}}
    told = {effect.node_id: effect for effect in later if isinstance(effect, Reconcile)}
    assert told == {
        OWN: Reconcile(OWN, "alpha", "B", ("three",), (), ("two",), 1),
        "gamma": Reconcile("gamma", "gamma", "B", ("far",), (), (), 0),
        "beta": Reconcile("beta", "beta", "B", (), ("far",), (), 0),
    }
    assert not [effect for effect in later if isinstance(effect, Announce)]
    world.check_all_is_there()


def test_the_same_psyspec_once_more_changes_nothing_and_says_so():
    world = started()
    world.report_all()
    world.quiet()
    before = len(world.effects)
    world.give(A)
    world.quiet()
    assert world.effects[before:] == [
        Reconcile(OWN, "alpha", "A", (), (), (), 2),
        Reconcile("beta", "beta", "A", (), (), (), 1),
    ]


def test_what_is_under_way_for_an_old_psyspec_is_cancelled_and_its_end_awaited():
    world = started()
    world.report(OWN)
    while world.due:
        world.act()
    (old,) = world.followed
    world.give(B)
    assert Cancel(OWN, old) in world.due
    assert len([effect for effect in of(world, Dispatch) if effect.node_id == OWN]) == 1
    world.quiet()
    assert not of(world, Failed)
    world.report_all()
    world.quiet()
    world.check_all_is_there()


def test_a_psyspec_that_came_by_a_message_stands_within_a_boot_and_the_arguments_at_the_next():
    world = started()
    world.report_all()
    world.quiet()
    world.give(C)
    world.quiet()
    world.crash()
    world.offer(A)
    world.report_all()
    world.quiet()
    world.check_all_is_there()
    assert world.state.spec == C
    world.crash()
    world.reboot(OWN)
    world.wanted = A
    world.offer(A)
    world.report_all()
    world.quiet()
    assert world.state.spec == A
    world.check_all_is_there()


def test_arguments_that_say_something_new_are_a_changed_psyspec():
    world = started()
    world.report_all()
    world.quiet()
    world.crash()
    world.wanted = B
    world.offer(B)
    world.report_all()
    world.quiet()
    assert {effect.digest for effect in of(world, Reconcile)} == {"B"}
    world.check_all_is_there()


def test_a_draining_node_is_left_alone_until_it_takes_recipes_again():
    world = started()
    world.nodes["beta"].draining = True
    world.report_all()
    world.quiet()
    assert [effect.node_id for effect in of(world, Dispatch)] == [OWN]
    world.nodes["beta"].draining = False
    world.report("beta")
    world.quiet()
    world.check_all_is_there()


def test_a_node_is_known_by_its_id_or_else_by_its_name():
    wanted = spec("I", {"one": "1"})
    wanted = type(wanted)("demo", "I", (*wanted.goals, goal("beta", {"far": "1"}, node_id="b7")))
    world = started(wanted)
    world.report_all()
    world.quiet()
    assert [effect.node_id for effect in of(world, Dispatch)] == [OWN]
    world.nodes["b7"] = type(world.nodes["beta"])("whatever")
    world.report("b7")
    world.quiet()
    assert [effect.node_id for effect in of(world, Dispatch)] == [OWN, "b7"]


def test_what_was_journaled_is_followed_again_and_never_made_twice():
    world = started()
    world.report_all()
    world.act()  # prepared, journaled, not sent
    world.crash()
    world.offer(A)
    world.report_all()
    own = [effect for effect in world.due if effect == Follow(OWN, "r-1")]
    assert len(own) == 1
    world.quiet()
    assert len([key for key in world.succeeded if key[0] == OWN]) == 1
    world.check_all_is_there()


MOVED = spec("M", {"one": "1", "two": "1"}, gamma={"far": "1"})


def test_a_module_that_moves_is_gone_from_the_old_node_before_it_is_on_the_new_one():
    world = started()
    world.report_all()
    world.quiet()
    before = len(world.effects)
    world.give(MOVED)
    later = world.effects[before:]
    assert [effect for effect in later if isinstance(effect, Remove | Dispatch)] == [Remove("beta", "far")]
    assert of(world, Held) == [Held("gamma", "gamma", ("far",), ("beta",))]
    world.now += AWAY_S - 1
    world.report("beta")  # it is there, and takes its time
    world.now += AWAY_S - 1
    world.take(Tick(world.now))
    assert not [effect for effect in of(world, Dispatch) if effect.node_id == "gamma"]
    world.act(world.due.index(Remove("beta", "far")))
    assert [effect.node_id for effect in of(world, Dispatch)][-1] == "gamma"
    world.quiet()
    assert not of(world, Unheard)
    world.check_all_is_there()


def test_a_module_that_moves_from_a_node_that_drains_is_removed_there():
    world = started()
    world.report_all()
    world.quiet()
    world.nodes["beta"].draining = True
    world.report("beta")
    world.give(MOVED)
    world.quiet()
    world.check_all_is_there()


def test_a_node_that_is_away_is_waited_for_a_minute_and_loses_its_module_when_it_comes():
    world = started()
    world.report_all()
    world.quiet()
    world.crash()
    del world.due[:]
    world.offer(A)
    world.report(OWN)
    world.report("gamma")
    world.give(MOVED)
    assert not [effect for effect in of(world, Dispatch) if effect.node_id == "gamma"]
    assert core.next_due(world.state) == world.now + AWAY_S
    world.quiet()
    assert of(world, Unheard) == [Unheard("gamma", "gamma", ("far",), ("beta",))]
    assert world.nodes["gamma"].components == {"far": "1"}
    world.report("beta")
    assert world.due == [Remove("beta", "far")]
    world.quiet()
    world.check_all_is_there()


PARTS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"))


@settings(max_examples=100, deadline=None)
@given(PARTS, PARTS)
def test_what_is_told_of_a_change_names_every_component_once(old, new):
    world = started(spec("old", old))
    world.report_all()
    world.quiet()
    world.give(spec("new", new))
    world.quiet()
    (told,) = of(world, Reconcile)
    changed = {*told.added, *told.removed, *told.restarted}
    assert len(changed) == len(told.added) + len(told.removed) + len(told.restarted)
    assert set(told.added) == new.keys() - old.keys()
    assert set(told.removed) == old.keys() - new.keys()
    assert set(told.restarted) == {name for name in old.keys() & new.keys() if old[name] != new[name]}
    assert told.unchanged == len(old.keys() | new.keys()) - len(changed)


ACT = st.tuples(st.just("act"), st.integers(0, 5))
OPS = st.one_of(
    ACT,
    ACT,
    st.tuples(st.just("bake"), st.integers(0, 30), st.booleans()),
    st.tuples(st.just("hear"), st.integers(0, 30)),
    st.tuples(st.just("report"), NODES),
    st.tuples(st.just("reboot"), NODES),
    st.tuples(st.just("crash")),
    st.tuples(st.just("give"), st.integers(0, 2)),
    st.tuples(st.just("time"), st.floats(0, 50)),
    st.tuples(st.just("drain"), NODES, st.booleans()),
)


MOVES = st.one_of(
    ACT,
    st.tuples(st.just("give"), st.integers(0, 2)),
    st.tuples(st.just("bake"), st.integers(0, 30), st.booleans()),
    st.tuples(st.just("hear"), st.integers(0, 30)),
    st.sampled_from([("crash",), ("report", OWN), ("reboot", "beta"), ("drain", "beta", True), ("time", 50)]),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(MOVES, min_size=10, max_size=40))
def test_a_component_lives_on_one_node_at_a_time_where_no_node_is_away(ops):
    world = World(alone=True)
    world.give(A)
    world.report_all()
    world.quiet()
    for op in [("give", 1), *ops]:
        if op[0] == "time":
            world.report_all()
        apply(world, op)


def apply(world: World, op: tuple) -> None:
    recipes = list(world.recipes)
    match op:
        case ("act", index) if world.due:
            world.act(index % len(world.due))
        case ("bake", index, ok) if recipes:
            world.bake(recipes[index % len(recipes)], ok)
        case ("hear", index) if recipes:
            world.hear(recipes[index % len(recipes)])
        case ("report", node_id):
            world.report(node_id)
        case ("reboot", node_id):
            world.reboot(node_id)
        case ("crash",):
            world.crash()
        case ("give", index):
            world.give(SPECS[index])
        case ("time", seconds):
            world.now += seconds
            world.take(Tick(world.now))
        case ("drain", node_id, draining):
            world.nodes[node_id].draining = draining


@settings(max_examples=400, deadline=None)
@given(st.lists(OPS, max_size=60))
def test_any_history_ends_with_everything_in_its_place(ops):
    world = World()
    world.give(A)
    for op in ops:
        apply(world, op)
    for node_id in world.nodes:
        world.nodes[node_id].draining = False
    world.report_all()
    world.quiet()
    world.check_all_is_there()
    assert len(world.announced) == len(set(world.announced))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("report"), NODES),
            st.tuples(st.just("reboot"), NODES),
            st.tuples(st.just("give"), st.integers(0, 2)),
        ),
        max_size=8,
    ),
    st.integers(0, 8),
    st.integers(0, 12),
)
def test_a_restart_at_any_point_gives_the_same_bring_ups(ops, which, report_at):
    told = []
    for crashes in (False, True):
        world = World()
        world.give(A)
        for turn, op in enumerate([("report", OWN), *ops]):
            apply(world, op)
            if op[0] == "reboot":
                world.report_all()
            world.quiet(report_at=report_at if turn == which else -1, crash=crashes)
        world.report_all()
        world.quiet()
        world.check_all_is_there()
        told.append((sorted(world.succeeded), world.announced))
    assert told[0][1] == told[1][1]
    assert told[0][0] == told[1][0]
