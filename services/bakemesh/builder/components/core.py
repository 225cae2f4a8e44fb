"""What a component does next: pure, one function from (life, event, facts) to (life, effects).

States change through the table of `states` alone. Guarantees: an instance is launched only where nothing of
another one lives; one that somebody stopped is not started by anything but Start, Restart or Resume; one that
its policy lets be is not started by anything but Want, Start or Restart; a quarantine comes only when the
crash budget is spent, and only Start, Restart, a changed spec or a new start of the node end it before its
time. Left out: clocks, processes, journal (see `component`).
"""

from __future__ import annotations

from dataclasses import replace

from bakemesh.builder.components.life import (
    REASON_BYTES,
    UNHEALTHY_CODE,
    After,
    AliveFor,
    Arm,
    Bygone,
    Due,
    Effect,
    End,
    Event,
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
    Wait,
    Want,
    because,
    policy_of,
    reported,
    waits_of,
)
from bakemesh.builder.components.states import Move, State, move
from bakemesh.protocol.builder.messages import clip
from bakemesh.protocol.builder.spec.component import ComponentSpec
from bakemesh.restart import Ended, LetBe, Quarantine, Record, decide
from bakemesh.restart import Restart as Again

_ABOUT_ONE = (
    Launched,
    NotLaunched,
    Vanished,
    Exited,
    Lingers,
    ReportedReady,
    ReportedFailed,
    AliveFor,
    ProbeGood,
    ProbeMissed,
)
NOT_LAUNCHED_CODE = 127


def step(life: Life, event: Event, facts: Facts) -> tuple[Life, list[Effect]]:
    """The next life and what to do. Never raises: what does not apply changes nothing."""
    turn = _Turn(life, facts)
    if isinstance(event, _ABOUT_ONE):
        if life.instance is not None and event.instance == life.instance:
            turn.of_instance(event)
    else:
        turn.asked(event)
    if turn.life.state is not life.state:
        turn.set(since=facts.wall)
    return turn.life, turn.effects


class _Turn:
    """One event: the life as it changes, and the effects in order."""

    def __init__(self, life: Life, facts: Facts) -> None:
        self.life, self.facts = life, facts
        self.effects: list[Effect] = []

    def set(self, **changes: object) -> None:
        self.life = replace(self.life, **changes)  # type: ignore[arg-type]

    def move(self, by: Move, reason: str) -> None:
        self.set(state=move(self.life.state, by))
        self.life = because(self.life, reason)

    # -- what somebody wants

    def asked(self, event: Event) -> None:
        match event:
            case Want():
                self.want(event.spec)
            case Start():
                self.start(self.life.spec)
            case Restart():
                self.restart()
            case Stop():
                self.stop(event)
            case Resume():
                if self.life.drained:
                    self.start(self.life.spec)
            case Remove():
                self.remove()
            case Due():
                self.due()
            case Recovered():
                if self.life.state in (State.BACKOFF, State.QUARANTINED):
                    self.effects.append(Arm(self.life.due))
            case Leftover():
                self.leftover(event.reason)
            case Bygone():
                self.bygone(event.reason)
            case _:
                pass

    def want(self, spec: ComponentSpec) -> None:
        """A recipe that is tried again must not give a crash loop its whole budget again."""
        if self.life.state is State.QUARANTINED and spec.digest == self.life.spec.digest:
            self.set(spec=spec)
        else:
            self.start(spec)

    def start(self, spec: ComponentSpec) -> None:
        life = self.life
        same = spec.digest == life.spec.digest
        self.set(spec=spec, drained=False)
        if life.state is State.STOPPING:
            self.set(after=After.START)
        elif life.alive:
            if not same:
                self.end(After.START, "its spec was changed")
        elif life.state is State.BACKOFF and same:
            pass  # it is being healed: its pause and its budget stand
        else:
            self.afresh()

    def restart(self) -> None:
        self.set(drained=False)
        if self.life.state is State.STOPPING:
            self.set(after=After.START)
        elif self.life.alive:
            self.end(After.START, "restarted on request")
        else:
            self.afresh()

    def stop(self, event: Stop) -> None:
        life = self.life
        if life.state is State.STOPPING and life.after is After.REMOVE:
            return  # it ends, and is forgotten: whoever asked for that was answered
        if event.drained and life.state in (State.STOPPED, State.ENDED) and not life.drained:
            return  # it did not run: a Resume must not start it
        if event.drained and life.state is State.STOPPING and life.after is not After.START:
            return
        self.set(drained=event.drained)
        if life.state is State.STOPPING:
            self.set(after=After.REST)
            self.life = because(self.life, event.reason)
        elif life.alive:
            self.end(After.REST, event.reason)
        elif life.state is not State.STOPPED:
            self.move(Move.HALT, event.reason)

    def remove(self) -> None:
        if self.life.state is State.STOPPING:
            self.set(after=After.REMOVE)
        elif self.life.alive:
            self.end(After.REMOVE, "removed")
        else:
            self.effects.append(Forget())

    def end(self, after: After, reason: str) -> None:
        life = self.life
        assert life.instance is not None
        self.move(Move.STOP, reason)
        self.set(after=after)
        self.effects.append(End(life.instance, life.spec.shutdown_ms / 1000))

    def leftover(self, reason: str) -> None:
        life = self.life
        if life.state is not State.STOPPING:
            self.move(Move.STOP, reason)
        elif life.after is After.REMOVE:
            return
        self.set(after=After.REST, drained=False, record=Record())
        self.life = because(self.life, reason)

    def bygone(self, reason: str) -> None:
        if self.life.state is State.STOPPING and self.life.after is After.REMOVE:
            self.effects.append(Forget())
        if self.life.alive:
            self.set(state=move(State.STOPPING, Move.HALT), instance=None, pid=0)
        elif self.life.state is not State.STOPPED:
            self.set(state=move(self.life.state, Move.HALT))
        self.set(after=After.REST, drained=False, record=Record())
        self.life = because(self.life, reason)

    # -- starting

    def afresh(self) -> None:
        """As if it had never failed."""
        self.set(record=Record(), restarts=0, was_ready=False, exitcode=None, report="", traceback="")
        self.launch()

    def launch(self, reason: str = "") -> None:
        self.move(Move.LAUNCH, reason)
        self.set(
            instance=self.facts.fresh,
            pid=0,
            began=self.facts.now,
            waits=waits_of(self.life.spec),
            misses=0,
            lingers="",
            failed=None,
            after=After.REST,
        )
        self.effects.append(Launch(self.facts.fresh))

    def due(self) -> None:
        life = self.life
        if life.state not in (State.BACKOFF, State.QUARANTINED):
            return
        if self.facts.now < life.due:
            self.effects.append(Arm(life.due))
            return
        self.set(restarts=life.restarts + 1)
        self.launch(life.reason)

    # -- what happens to the instance

    def of_instance(self, event: Event) -> None:
        match event:
            case Launched():
                self.launched(event)
            case NotLaunched():
                self.gone(NOT_LAUNCHED_CODE, event.why)
            case Vanished():
                self.vanished()
            case Exited():
                self.gone(event.code, event.how, event.ago_s)
            case Lingers():
                self.set(lingers=clip(event.who, REASON_BYTES))
                if self.life.state is State.READY:
                    self.move(Move.SICK, "it was killed, and not all of it ended")
            case ReportedReady():
                self.awaited(Wait.REPORT, Wait.ALIVE)
            case AliveFor():
                self.awaited(Wait.ALIVE)
            case ReportedFailed():
                if self.life.state is not State.STOPPING:
                    self.life = reported(self.life, event.summary, event.traceback)
                    self.set(failed=event.instance)
            case ProbeGood():
                self.set(misses=0)
                self.awaited(Wait.PROBE)
            case ProbeMissed():
                self.missed(event.why)
            case _:
                pass

    def launched(self, event: Launched) -> None:
        life = self.life
        if life.pid != event.pid:
            self.set(pid=event.pid, began=self.facts.now)
        if life.state in (State.STOPPING, State.UNHEALTHY):
            self.effects.append(End(event.instance, life.spec.shutdown_ms / 1000))

    def awaited(self, *what: Wait) -> None:
        life = self.life
        if life.state is not State.STARTING:
            return
        self.set(waits=life.waits - set(what))
        if not self.life.waits:
            self.move(Move.READY, "")
            self.set(was_ready=True, report="", traceback="")

    def missed(self, why: str) -> None:
        life, health = self.life, self.life.spec.health
        if health is None:
            return
        if life.state is State.STARTING:
            self.life = because(life, f"not healthy yet: {why}")
        elif life.state is State.READY:
            self.set(misses=life.misses + 1)
            if self.life.misses >= health.misses:
                self.move(Move.SICK, f"missed {self.life.misses} health probes: {why}")
                assert life.instance is not None
                self.effects.append(End(life.instance, life.spec.shutdown_ms / 1000))

    def vanished(self) -> None:
        """One that was never seen to run is launched again: nothing is held against it."""
        if self.life.state is State.STARTING and not self.life.pid:
            self.set(instance=None)
            self.launch(self.life.reason)
        else:
            self.gone(-9, "nothing is known of its end")

    def gone(self, code: int, how: str, ago_s: float = 0.0) -> None:
        """Nothing of the instance lives."""
        life = self.life
        self.set(instance=None, pid=0, exitcode=code, misses=0, lingers="", waits=frozenset())
        if life.state is State.STOPPING:
            self.after_stop(how)
            return
        reason = how
        if life.failed == life.instance:
            reason = f"its crank failed ({how})"
        else:
            self.set(report="", traceback="")
            if life.state is State.UNHEALTHY:
                code, reason = UNHEALTHY_CODE, life.reason
        ran_s = max(0.0, self.facts.now - ago_s - life.began)
        decision, record = decide(
            policy_of(life.spec), life.record, Ended(code, ran_s, self.facts.now, self.facts.draw)
        )
        self.set(record=record)
        match decision:
            case Again(pause_s):
                self.move(Move.PAUSE, reason)
                self.wait_until(self.facts.now + pause_s)
            case Quarantine(probe_s):
                self.move(Move.QUARANTINE, f"ended too often; at last: {reason}")
                self.wait_until(self.facts.now + probe_s)
            case LetBe():
                self.move(Move.LET_BE, reason)

    def wait_until(self, due: float) -> None:
        self.set(due=due)
        self.effects.append(Arm(due))

    def after_stop(self, how: str) -> None:
        life = self.life
        match life.after:
            case After.START:
                self.afresh()
            case After.REST:
                self.move(Move.HALT, life.reason)
            case After.REMOVE:
                self.move(Move.HALT, life.reason)
                self.effects.append(Forget())
