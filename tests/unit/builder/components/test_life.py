"""The component's pure core: what must be true whatever happens to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakemesh.builder.components import life as lives
from bakemesh.builder.components.core import step
from bakemesh.builder.components.life import (
    AliveFor,
    Arm,
    Bygone,
    Due,
    End,
    Exited,
    Facts,
    Forget,
    Launch,
    Launched,
    Leftover,
    Life,
    Lingers,
    NotLaunched,
    ProbeGood,
    ProbeMissed,
    Recovered,
    Remove,
    ReportedFailed,
    ReportedReady,
    Restart,
    Resume,
    Start,
    Stop,
    Vanished,
    Want,
)
from bakemesh.builder.components.states import ALIVE, MoveError, State, move
from bakemesh.builder.components.states import Move as By
from bakemesh.protocol.builder.spec.component import CommandCrank, ComponentSpec, Health, ScriptCrank


def spec(**more: Any) -> ComponentSpec:
    return ComponentSpec(**{"name": "m", "crank": CommandCrank(argv=("/bin/true",)), **more})


class World:
    """One component under a clock that is turned by hand, and the instances that it has launched."""

    def __init__(self, wanted: ComponentSpec | None = None) -> None:
        self.life = Life(spec=wanted or spec())
        self.now, self.count = 100.0, 0
        self.running: set[str] = set()
        self.effects: list[lives.Effect] = []

    def tell(self, event: lives.Event, *, after: float = 0.0) -> World:
        self.now += after
        self.count += 1
        facts = Facts(self.now, int(self.now * 1e6), 0.0, f"i{self.count}")
        self.life, self.effects = step(self.life, event, facts)
        for effect in self.effects:
            if isinstance(effect, Launch):
                assert not self.running, "two instances at once"
                self.running.add(effect.instance)
        return self

    @property
    def instance(self) -> str:
        assert self.life.instance is not None
        return self.life.instance

    def ends(self, code: int = 1, *, after: float = 0.0) -> World:
        self.running.discard(self.instance)
        return self.tell(Exited(self.instance, code, f"exit code {code}"), after=after)

    def runs(self) -> World:
        return self.tell(Launched(self.instance, 4711))

    def ready(self) -> World:
        return self.runs().tell(AliveFor(self.instance))


def started(wanted: ComponentSpec | None = None) -> World:
    world = World(wanted)
    return world.tell(Want(world.life.spec))


def quarantined() -> World:
    world = started(spec(max_restarts=1)).runs()
    world.ends().tell(Due(), after=1).runs().ends()
    assert world.life.state is State.QUARANTINED
    return world


def test_a_bare_command_is_ready_once_it_lived_long_enough():
    world = started()
    assert world.effects == [Launch(world.instance)]
    assert world.ready().life.state is State.READY


def test_a_host_says_that_it_is_ready_and_being_alive_is_not_enough():
    world = started(spec(crank=ScriptCrank(script="a.py"))).runs()
    assert world.tell(AliveFor(world.instance)).life.state is State.STARTING
    assert world.tell(ReportedReady(world.instance)).life.state is State.READY


def test_with_health_ready_is_the_first_good_probe_and_a_host_must_say_so_too():
    probed = started(spec(health=Health(argv=("true",)))).runs()
    assert probed.tell(AliveFor(probed.instance)).life.state is State.STARTING
    assert probed.tell(ProbeGood(probed.instance)).life.state is State.READY
    host = started(spec(crank=ScriptCrank(script="a.py"), health=Health(subject="X.Y"))).runs()
    assert host.tell(ProbeGood(host.instance)).life.state is State.STARTING
    assert host.tell(ReportedReady(host.instance)).life.state is State.READY


def test_missed_probes_while_it_starts_are_said_and_not_counted():
    world = started(spec(health=Health(argv=("true",), misses=1))).runs()
    world.tell(ProbeMissed(world.instance, "exit code 1"))
    assert (world.life.state, world.effects) == (State.STARTING, [])
    assert "exit code 1" in world.life.reason


def test_only_misses_in_a_row_make_it_unhealthy_and_then_it_is_ended_and_its_policy_asked():
    world = started(spec(health=Health(argv=("true",), misses=2))).runs()
    world.tell(ProbeGood(world.instance)).tell(ProbeMissed(world.instance, "silent"))
    world.tell(ProbeGood(world.instance)).tell(ProbeMissed(world.instance, "silent"))
    assert world.life.state is State.READY
    world.tell(ProbeMissed(world.instance, "silent"))
    assert world.life.state is State.UNHEALTHY
    assert world.effects == [End(world.instance, 5.0)]
    assert world.ends(0).life.state is State.BACKOFF
    assert "silent" in world.life.reason


def test_an_unhealthy_component_that_ends_well_has_failed_all_the_same():
    world = started(spec(health=Health(argv=("true",), misses=1), restart="on-failure")).runs()
    world.tell(ProbeGood(world.instance)).tell(ProbeMissed(world.instance, "silent"))
    assert world.ends(0).life.state is State.BACKOFF


def test_a_crash_loop_goes_into_quarantine_when_its_budget_is_spent_and_not_before():
    world = started(spec(max_restarts=3)).runs()
    for _ in range(3):
        assert world.ends().life.state is State.BACKOFF
        assert world.tell(Due(), after=10).life.state is State.STARTING
        world.runs()
    assert world.ends().life.state is State.QUARANTINED
    assert world.life.restarts == 3


def test_a_quarantined_one_is_tried_again_and_one_failure_sends_it_back_for_longer():
    world = quarantined()
    first = world.life.due - world.now
    assert world.tell(Due()).effects == [Arm(world.life.due)], "not before it is due"
    world.tell(Due(), after=first).runs()
    assert world.ends().life.state is State.QUARANTINED
    assert world.life.due - world.now > first


def test_a_timer_that_rings_early_is_armed_again():
    world = started().runs().ends()
    assert world.tell(Due()).effects == [Arm(world.life.due)]


def test_the_end_of_one_that_its_policy_lets_be_is_final_until_start():
    world = started(spec(restart="never")).ready().ends(0)
    assert world.life.state is State.ENDED
    assert world.tell(Due(), after=1000).effects == []
    assert world.tell(Resume()).effects == []
    assert world.tell(Want(world.life.spec)).life.state is State.STARTING


def test_a_changed_spec_ends_the_old_instance_before_it_starts_the_new_one():
    world = started().ready()
    old, changed = world.instance, spec(ready_ms=5)
    assert world.tell(Want(changed)).effects == [End(old, 5.0)]
    world.ends(-15)
    assert world.effects == [Launch(world.instance)]
    assert (world.life.spec, world.life.restarts, world.life.reason) == (changed, 0, "")


def test_the_same_spec_changes_nothing_where_it_runs_or_is_being_healed():
    world = started().ready()
    assert world.tell(Want(spec())).effects == []
    world.ends()
    due = world.life.due
    assert world.tell(Want(spec())).effects == []
    assert (world.life.state, world.life.due) == (State.BACKOFF, due)


def test_a_changed_spec_does_not_wait_for_the_old_one_s_pause():
    world = started().ready().ends()
    assert isinstance(world.tell(Want(spec(ready_ms=5))).effects[0], Launch)


def test_a_start_undoes_no_change_that_was_wanted_before_it():
    world = started().ready()
    asked = Start()  # before the change is taken
    world.tell(Want(spec(ready_ms=5))).ends(-15)
    assert world.tell(asked).effects == []
    assert world.life.spec == spec(ready_ms=5)
    world.tell(Stop("enough")).ends(-15)
    assert isinstance(world.tell(asked).effects[0], Launch)
    assert world.life.spec == spec(ready_ms=5)


def test_a_stop_wins_over_a_pause_and_over_a_start_that_waits():
    world = started().runs().ends().tell(Stop("enough"))
    assert world.life.state is State.STOPPED
    assert world.tell(Due(), after=1000).effects == []
    world = started().ready().tell(Want(spec(ready_ms=5))).tell(Stop("enough"))
    assert world.ends(-15).life.state is State.STOPPED
    assert world.life.reason == "enough"


def test_a_start_after_a_stop_that_is_under_way_is_carried_out_after_it():
    world = started().ready().tell(Stop("enough")).tell(Want(spec()))
    assert world.effects == []
    assert isinstance(world.ends(-15).effects[0], Launch)


def test_a_restart_cleans_the_budget():
    world = quarantined()
    assert world.tell(Restart()).life.state is State.STARTING
    assert (world.life.restarts, world.life.record.probes) == (0, 0)


def test_the_same_spec_wanted_again_ends_no_quarantine_and_what_else_does():
    world = quarantined()
    before = world.life
    assert world.tell(Want(before.spec)).effects == []
    assert world.life == before
    again = world.tell(Due(), after=world.life.due - world.now).runs().ends()
    assert again.life.state is State.QUARANTINED, "a re-probe has no budget"
    for event in (Start(), Want(spec(ready_ms=5))):
        world = quarantined().tell(event)
        assert (world.life.state, world.life.record.restarts) == (State.STARTING, ())
    anew = quarantined().tell(Bygone("earlier start of the node"))
    assert anew.tell(Want(anew.life.spec)).life.state is State.STARTING


def test_remove_forgets_it_only_when_nothing_of_it_lives():
    world = started().ready().tell(Remove())
    assert Forget() not in world.effects
    assert world.ends(-15).effects == [Forget()]


@pytest.mark.parametrize(
    "between", [Stop("the node was asked down"), Stop("drained", drained=True), Remove()], ids=str
)
def test_a_remove_that_was_accepted_is_carried_out_whatever_comes_before_its_end(between: lives.Event):
    world = started().ready().tell(Remove()).tell(between)
    assert world.ends(-15).effects == [Forget()]
    assert world.tell(Resume()).effects == []


def test_a_remove_is_carried_out_by_the_next_start_of_the_node():
    world = started().ready().tell(Remove())
    world.running.clear()
    assert world.tell(Bygone("earlier start of the node")).effects == [Forget()]


def test_a_drain_is_undone_by_a_resume_and_touches_nobody_who_did_not_run():
    world = started().ready().tell(Stop("drained", drained=True)).ends(-15)
    assert isinstance(world.tell(Resume()).effects[0], Launch)
    rested = started().ready().tell(Stop("enough")).ends(-15).tell(Stop("drained", drained=True))
    assert rested.tell(Resume()).effects == []
    done = started(spec(restart="never")).ready().ends(0).tell(Stop("drained", drained=True))
    assert done.life.state is State.ENDED


def test_what_never_began_is_launched_again_without_a_charge():
    world = started()
    first = world.instance
    world.running.clear()
    world.tell(Vanished(first))
    assert world.instance != first
    assert world.life.record.restarts == ()


def test_one_that_ran_and_left_no_trace_has_failed():
    world = started().ready()
    world.running.clear()
    assert world.tell(Vanished(world.instance)).life.state is State.BACKOFF


def test_a_component_that_cannot_be_launched_is_tried_under_its_policy():
    world = started(spec(max_restarts=0))
    world.running.clear()
    world.tell(NotLaunched(world.instance, "no such file"))
    assert world.life.state is State.QUARANTINED
    assert "no such file" in world.life.reason


def test_a_reported_failure_is_the_reason_and_its_traceback_is_kept_within_bounds():
    world = started().ready()
    world.tell(ReportedFailed(world.instance, "ValueError: no", "x" * 100_000 + "the end"))
    world.ends(70)
    assert (world.life.reason, world.life.report) == ("its crank failed (exit code 70)", "ValueError: no")
    assert world.life.traceback.endswith("the end")
    assert len(world.life.traceback) == 16 << 10
    world.tell(Due(), after=100)
    assert world.life.report.startswith("ValueError"), "still known while it starts again"
    assert world.ready().life.traceback == ""


def test_news_of_another_instance_changes_nothing():
    world = started().ready()
    before = world.life
    for event in (
        Exited("other", 1, "?"),
        ReportedFailed("other", "?"),
        ProbeMissed("other", "?"),
        Vanished("other"),
        Launched("other", 1),
    ):
        assert world.tell(event).effects == []
        assert world.life == before


def test_a_builder_that_begins_arms_pauses_and_ends_what_was_being_ended():
    world = started().runs().ends()
    assert world.tell(Recovered()).effects == [Arm(world.life.due)]
    world = started().ready().tell(Stop("enough"))
    assert world.tell(Launched(world.instance, 4711)).effects == [End(world.instance, 5.0)]


def test_a_new_start_of_the_node_revives_nothing():
    for world in (started().ready(), started().runs().ends(), quarantined()):
        world.running.clear()
        world.tell(Bygone("earlier start of the node"))
        assert (world.life.state, world.life.instance) == (State.STOPPED, None)
        assert world.tell(Due(), after=10_000).effects == []


def test_what_may_live_of_an_earlier_start_of_the_node_is_ended_and_then_rests():
    for world in (started().ready(), started().ready().tell(Want(spec(ready_ms=5)))):
        world.tell(Leftover("earlier start of the node"))
        assert world.life.state is State.STOPPING
        assert world.tell(Launched(world.instance, 4711)).effects == [End(world.instance, 5.0)]
        assert world.ends(-15).effects == []
        assert (world.life.state, world.life.reason) == (State.STOPPED, "earlier start of the node")
    wanted = started().ready().tell(Leftover("earlier start of the node")).tell(Want(spec()))
    assert wanted.effects == []
    assert isinstance(wanted.ends(-15).effects[0], Launch), "once nothing of the old one lives"
    removed = started().ready().tell(Remove()).tell(Leftover("earlier start of the node"))
    assert removed.ends(-15).effects == [Forget()]


def test_one_that_survives_its_end_is_not_ready_and_says_who_until_it_is_over():
    world = started().ready()
    world.tell(Lingers(world.instance, "survives KILL: sleep (12)"))
    assert (world.life.state, world.effects) == (State.UNHEALTHY, [])
    assert "sleep (12)" in world.life.lingers
    assert (world.ends(-9).life.state, world.life.lingers) == (State.BACKOFF, "")


def test_one_that_is_long_in_starting_says_since_when_and_what_is_missing():
    world = started(spec(crank=ScriptCrank(script="a.py"), health=Health(argv=("true",))))
    begun = world.life.since
    assert lives.why(world.life, begun + 14_900_000) == ""
    assert lives.why(world.life, begun + 15_000_000) == "not ready for 15 s and more, awaited: its launch"
    world.runs().tell(ProbeMissed(world.instance, "exit code 1"))
    said = lives.why(world.life, begun + 119_000_000)
    assert said.startswith("not ready for 60 s and more, awaited: that it reports itself ready, a good")
    assert "exit code 1" in said
    world.tell(ProbeGood(world.instance)).tell(ReportedReady(world.instance))
    assert lives.why(world.life, begun + 10**9) == ""


def test_the_journal_gives_back_what_it_was_given():
    world = quarantined()
    assert lives.from_json(world.life.spec, lives.to_json(world.life)) == world.life
    host = started(spec(crank=ScriptCrank(script="a.py"), health=Health(subject="X.Y")))
    assert lives.from_json(host.life.spec, lives.to_json(host.life)) == host.life


def test_what_the_table_lacks_is_refused():
    with pytest.raises(MoveError, match="stopped"):
        move(State.STOPPED, By.READY)


ASKED = ["start", "want", "change", "restart", "stop", "drain", "resume", "remove", "due", "recovered"]
SEEN = ["launched", "not-launched", "vanished", "exit-ok", "exit-bad", "ready", "failed", "alive", "good"]
KINDS = st.sampled_from([*ASKED, *SEEN, "missed", "stale"])


@given(
    st.lists(st.tuples(KINDS, st.floats(0, 400)), max_size=60),
    st.sampled_from(("always", "on-failure", "never")),
    st.integers(0, 3),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_whatever_happens(events, when, budget, host):
    """Never two instances; a stop and an end stand until somebody starts it; none in quarantine too soon."""
    crank = ScriptCrank(script="a.py") if host else CommandCrank(argv=("x",))
    one = spec(restart=when, max_restarts=budget, crank=crank, health=Health(argv=("x",), misses=2))
    world = World(one)
    ends: list[float] = []
    for kind, wait in events:
        before = world.life
        instance = world.life.instance or "none"
        mortal = world.running == {instance}
        match kind:
            case "start":
                event: lives.Event = Start()
            case "want":
                event = Want(before.spec)
            case "change":
                event = Want(replace(one, ready_ms=len(ends)))
            case "restart":
                event = Restart()
            case "stop":
                event = Stop("stop")
            case "drain":
                event = Stop("drain", drained=True)
            case "resume":
                event = Resume()
            case "remove":
                event = Remove()
            case "due":
                event = Due()
            case "recovered":
                event = Recovered()
            case "launched":
                event = Launched(instance, 1)
            case "not-launched" if mortal:
                event = NotLaunched(instance, "?")
            case "vanished" if mortal:
                event = Vanished(instance)
            case "exit-ok" | "exit-bad" if mortal:
                event = Exited(instance, 0 if kind == "exit-ok" else 1, "?")
            case "ready":
                event = ReportedReady(instance)
            case "failed":
                event = ReportedFailed(instance, "?")
            case "alive":
                event = AliveFor(instance)
            case "good":
                event = ProbeGood(instance)
            case "missed":
                event = ProbeMissed(instance, "?")
            case _:
                event = Exited("stale", 1, "?")
        if isinstance(event, NotLaunched | Vanished | Exited):
            world.running.discard(event.instance)
        world.tell(event, after=wait)  # asserts that there are never two
        launches = [effect for effect in world.effects if isinstance(effect, Launch)]
        assert (world.life.instance is not None) == (world.life.state in ALIVE)
        assert world.running <= {world.life.instance}
        if launches and before.state in (State.STOPPED, State.ENDED):
            assert kind in ("start", "want", "change", "restart", "resume")
        if kind == "stop" and not before.alive:
            assert world.life.state is State.STOPPED
        if before.state is not State.QUARANTINED and world.life.state is State.QUARANTINED:
            assert len(before.record.restarts) >= budget or before.record.probes
        if before.state is State.STOPPING and before.after is lives.After.REST and not world.life.alive:
            assert world.life.state is State.STOPPED
