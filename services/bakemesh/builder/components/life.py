"""A component as a value, what happens to it, and what is to be done about it. `core` decides.

Times: `due`, `began` monotonic seconds of this start of the machine, `since` µs since the epoch. An event
that names an instance is about that instance alone: where the component has another one by now, or none, the
event is old news and changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from bakemesh.builder.components.states import ALIVE, State
from bakemesh.protocol.builder.messages import clip
from bakemesh.protocol.builder.node import TRACEBACK_BYTES
from bakemesh.protocol.builder.spec.component import CommandCrank, ComponentSpec
from bakemesh.restart import Policy, Record, When

REASON_BYTES = 512
LATE_S = 15  # not ready for so long, a starting component says so
UNHEALTHY_CODE = 1  # what its policy is told of a component that was ended because it missed its probes
PROBE_MOST_S = 900.0


class Wait(StrEnum):
    """What a starting component is waited for; it is ready when nothing is left."""

    REPORT = "report"  # that it says so
    PROBE = "probe"  # a good health probe
    ALIVE = "alive"  # ready-ms


class After(StrEnum):
    """What comes when the instance of a stopping component is gone."""

    REST = "rest"
    START = "start"
    REMOVE = "remove"


def waits_of(spec: ComponentSpec) -> frozenset[Wait]:
    """Readiness: a crank host says so, `<health>` by its first good probe; a bare command lives so long."""
    said = isinstance(spec.crank, CommandCrank)
    found = set() if said else {Wait.REPORT}
    if spec.health is not None:
        found.add(Wait.PROBE)
    return frozenset(found or {Wait.ALIVE})


def policy_of(spec: ComponentSpec) -> Policy:
    """Its restart policy. The re-probe of a quarantined one comes after a quiet window, then ever later."""
    window_s = max(spec.restart_window_ms, 1) / 1000
    return Policy(
        when=When(spec.restart),
        max_restarts=spec.max_restarts,
        window_s=window_s,
        probe_s=window_s,
        probe_most_s=max(PROBE_MOST_S, window_s),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One component. `spec` is what is wanted; while an instance of another one is being ended, `after` is
    START."""

    spec: ComponentSpec
    state: State = State.STOPPED
    instance: str | None = None
    pid: int = 0  # of the instance; 0: not known to run yet
    began: float = 0.0
    waits: frozenset[Wait] = frozenset()
    after: After = After.REST
    due: float = 0.0  # the end of a pause or a quarantine
    record: Record = field(default_factory=Record)
    restarts: int = 0  # by its policy, since somebody started it
    misses: int = 0
    was_ready: bool = False  # since somebody started it
    exitcode: int | None = None  # of the last end
    reason: str = ""  # why it is where it is: the Builder's own words
    report: str = ""  # what its crank said when it failed, in its words
    traceback: str = ""
    failed: str | None = None  # the instance that reported so
    drained: bool = False  # stopped with the node's drain, to be started again with its resume
    since: int = 0
    lingers: str = ""  # who keeps the instance from having ended: processes that survive KILL

    @property
    def alive(self) -> bool:
        """Whether a process of it may live."""
        return self.state in ALIVE


_AWAITED = {
    Wait.REPORT: "that it reports itself ready",
    Wait.PROBE: "a good health probe",
    Wait.ALIVE: "that it was alive for ready-ms",
}


def why(life: Life, wall: int) -> str:
    """Why it is where it is, at this time, for people. Nothing ends a start for being slow: who waits for it
    has a time of his own."""
    said = [life.reason, life.lingers]
    late_s = (wall - life.since) // 1_000_000
    if life.state is State.STARTING and late_s >= LATE_S:
        left = [_AWAITED[wait] for wait in Wait if wait in life.waits] if life.pid else ["its launch"]
        doubled_s = LATE_S << (late_s // LATE_S).bit_length() - 1  # so that it is no news every few seconds
        said.insert(0, f"not ready for {doubled_s} s and more, awaited: {', '.join(left)}")
    return "; ".join(each for each in said if each)


def to_json(life: Life) -> str:
    """As the journal keeps it; the spec apart."""
    found: dict[str, Any] = {each.name: getattr(life, each.name) for each in fields(life)}
    del found["spec"]
    found["waits"] = sorted(life.waits)
    found["record"] = [life.record.restarts, life.record.in_a_row, life.record.probes]
    return json.dumps(found)


def from_json(spec: ComponentSpec, text: str) -> Life:
    """What `to_json` wrote."""
    found = json.loads(text)
    restarts, in_a_row, probes = found["record"]
    known = {each.name for each in fields(Life)}
    return Life(
        spec=spec,
        **{
            **{name: value for name, value in found.items() if name in known},
            "state": State(found["state"]),
            "waits": frozenset(map(Wait, found["waits"])),
            "after": After(found["after"]),
            "record": Record(tuple(restarts), in_a_row, probes),
        },
    )


def because(life: Life, reason: str) -> Life:
    """With this reason, within bounds."""
    return replace(life, reason=clip(reason, REASON_BYTES))


def reported(life: Life, report: str, traceback: str) -> Life:
    """With what its crank said, within bounds; of a traceback the end is kept."""
    kept = traceback.encode("utf-8", "replace")[-TRACEBACK_BYTES:].decode("utf-8", "ignore")
    return replace(life, report=clip(report, REASON_BYTES), traceback=kept)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision needs from outside. `fresh`: a name for a new instance; `draw`: random from [0, 1)."""

    now: float
    wall: int
    draw: float
    fresh: str


# -- events


@dataclass(frozen=True, slots=True)
class Want:
    """Somebody wants this spec to run. One that runs as it is, is being healed or is in quarantine is left
    alone."""

    spec: ComponentSpec


@dataclass(frozen=True, slots=True)
class Start:
    """It is to run, as whoever made or changed it last wants it; after a quarantine its budget is clean."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Ended where it lives, started, its budget clean."""


@dataclass(frozen=True, slots=True)
class Stop:
    """It is to rest until somebody starts it. `drained`: or until the node's Resume."""

    reason: str
    drained: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """The node takes work again: one that was stopped by its drain is started."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Ended and forgotten."""


@dataclass(frozen=True, slots=True)
class Launched:
    """The instance runs: started now, or (after a restart of the Builder) found."""

    instance: str
    pid: int


@dataclass(frozen=True, slots=True)
class NotLaunched:
    """The instance could not be started; nothing of it lives."""

    instance: str
    why: str


@dataclass(frozen=True, slots=True)
class Vanished:
    """Nothing of the instance lives and nothing is known of its end: it never began, or lost its trace."""

    instance: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The instance ended and nothing of it lives. `code`: minus the signal after one. `ago_s`: it ended
    before this was seen."""

    instance: str
    code: int
    how: str
    ago_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Lingers:
    """The instance is being killed, and `who` survives that."""

    instance: str
    who: str


@dataclass(frozen=True, slots=True)
class ReportedReady:
    """Its crank host says that it is ready."""

    instance: str


@dataclass(frozen=True, slots=True)
class ReportedFailed:
    """Its crank raised; its end follows."""

    instance: str
    summary: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class AliveFor:
    """The instance has lived for ready-ms."""

    instance: str


@dataclass(frozen=True, slots=True)
class ProbeGood:
    """A health probe was answered."""

    instance: str


@dataclass(frozen=True, slots=True)
class ProbeMissed:
    """One was not."""

    instance: str
    why: str


@dataclass(frozen=True, slots=True)
class Due:
    """A pause or a quarantine may be over."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A Builder begins with what the journal says of a component without an instance."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """The node was started anew, and the instance may live: it is looked for, ended, and not revived."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bygone:
    """The node was started anew, and nothing of the component lives: it is not revived."""

    reason: str


Event = (
    Want
    | Start
    | Restart
    | Stop
    | Resume
    | Remove
    | Launched
    | NotLaunched
    | Vanished
    | Exited
    | Lingers
    | ReportedReady
    | ReportedFailed
    | AliveFor
    | ProbeGood
    | ProbeMissed
    | Due
    | Recovered
    | Leftover
    | Bygone
)

# -- effects


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this instance, which is journaled; answer with Launched, NotLaunched or Vanished."""

    instance: str


@dataclass(frozen=True, slots=True)
class End:
    """TERM, and KILL after the grace, to the whole of this instance; its end is told by Exited."""

    instance: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class Arm:
    """Come back with Due at this time."""

    due: float


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop row and folder."""


Effect = Launch | End | Arm | Forget
