"""What is true of a bake, as one frozen value that the journal keeps, and the events and effects around it.

Everything here is data. `core.step` maps (state, event) to (state, effects); `session` carries effects out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from bakemesh.protocol.builder.codes import AckOutcome, Code, StepOutcome, Verb
from bakemesh.protocol.builder.lifecycle import TERMINAL, Phase


class Stopping(StrEnum):
    """Why the running attempt was told to end."""

    CANCEL = "cancel"
    SKIP = "skip"
    RETRY = "retry"
    BAKE_TIMEOUT = "bake-timeout"
    FAIL = "fail"  # the bake fails for a reason of its own (integrity)


@dataclass(frozen=True, slots=True)
class PendingPause:
    """A Pause that waits for the boundary; acknowledged when it rests, or as superseded."""

    verb: str
    ctrlseq: int
    issuedby: str


@dataclass(frozen=True, slots=True)
class Ending:
    """The terminal that is decided but not yet sent: every Data must be stored before it."""

    phase: Phase
    summary: str
    code: Code | None = None
    stepindex: int | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A bake between two events. `attempt` 0: the cursor's step has not begun."""

    phase: Phase = Phase.QUEUED
    cursor: int = 0
    attempt: int = 0
    running: bool = False  # an attempt of the cursor's step is in flight
    retry_waiting: bool = False  # its next attempt waits for the delay
    retries_used: int = 0
    losses: int = 0  # attempts of this step whose minder was killed
    stopping: Stopping | None = None
    rest: bool = False  # a Pause was accepted: rest at the next boundary
    pauses: tuple[PendingPause, ...] = ()  # those not acknowledged yet
    child_paused: bool = False  # the step follows a child, and the child rests
    failed_steps: tuple[int, ...] = ()
    step_percent: int = 0
    pct_floor: int = 0
    exitcodes: dict[str, int] = field(default_factory=dict)
    since: int = 0  # the first attempt of the chain that restarts of the Builder cut and that this one ends
    begun: int = 0  # µs since the epoch; 0 = not begun
    ending: Ending | None = None

    @property
    def over(self) -> bool:
        """Whether the end is decided: no control and no step changes anything any more."""
        return self.ending is not None or self.phase in TERMINAL


_FIELDS = tuple(each.name for each in fields(State))


def to_json(state: State) -> dict[str, Any]:
    """As the journal keeps it."""
    found: dict[str, Any] = {name: getattr(state, name) for name in _FIELDS}
    if state.pauses:
        found["pauses"] = [asdict(pause) for pause in state.pauses]
    if state.ending is not None:
        found["ending"] = asdict(state.ending)
    return found


def from_json(found: dict[str, Any]) -> State:
    """The state that `to_json` wrote."""
    ending = found["ending"]
    return State(
        **{
            **found,
            "phase": Phase(found["phase"]),
            "stopping": None if found["stopping"] is None else Stopping(found["stopping"]),
            "pauses": tuple(PendingPause(**pause) for pause in found["pauses"]),
            "failed_steps": tuple(found["failed_steps"]),
            "ending": None
            if ending is None
            else Ending(
                Phase(ending["phase"]),
                ending["summary"],
                None if ending["code"] is None else Code(ending["code"]),
                ending["stepindex"],
            ),
        }
    )


# -- events


@dataclass(frozen=True, slots=True)
class Begin:
    """A place among max-bakes is free. `now`: µs since the epoch; `expired`: its time to begin is over."""

    now: int
    expired: bool = False


@dataclass(frozen=True, slots=True)
class StepEnded:
    """The running attempt is over and its output is journaled. `seq`: the bake's last Data seq.

    `lost`: what minded its processes was killed; a retryable step is run again whatever its `retries`.
    `stopping`: the Builder stops; no further step begins, the next start goes on from here.
    """

    outcome: StepOutcome
    summary: str
    seq: int
    exitcode: int | None = None
    code: Code | None = None
    lost: bool = False
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class RetryDue:
    """The delay before the next attempt is over."""

    attempt: int


@dataclass(frozen=True, slots=True)
class BakeTimeout:
    """The root's timeout-ms is over."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The Builder itself cannot go on with this bake."""

    code: Code
    summary: str


@dataclass(frozen=True, slots=True)
class Recovered:
    """The journal was opened again after the Builder's end (or the Builder stops in an orderly way)."""

    seq: int
    summary: str = "the Builder was restarted"
    rerun: bool = True  # False: stopping; a retryable step is left for the next start


@dataclass(frozen=True, slots=True)
class Progress:
    """The running attempt says how far it is: `percent` of the step, or None; a summary of the Builder's
    making.
    """

    percent: int | None
    summary: str | None


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to say that changes nothing: a heartbeat, a request for data, a full store."""

    summary: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """Every Data that will be stored is stored: the terminal may go. `lastseq`: the last one. `taken`: outbox
    rows of Data that a cancelled bake takes back; they leave the journal together with this.
    """

    lastseq: int
    taken: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChildRests:
    """A followed child recipe said Paused (True) or Restarted (False)."""

    paused: bool


@dataclass(frozen=True, slots=True)
class Control:
    """A control that passed the checks of form and authority."""

    verb: Verb
    sent_as: str
    ctrlseq: int
    issuedby: str


Event = (
    Begin
    | StepEnded
    | RetryDue
    | BakeTimeout
    | Broken
    | Recovered
    | Progress
    | Remark
    | ChildRests
    | Control
    | Ended
)

# -- effects


@dataclass(frozen=True, slots=True)
class Say:
    """Send a Status of this kind."""

    kind: str
    summary: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SayOutcome:
    """Send Bake.Paused or Bake.Restarted (terminals go by `End`)."""

    phase: Phase
    summary: str
    code: str | None = None
    stepindex: int | None = None


@dataclass(frozen=True, slots=True)
class SayEnd:
    """Send the terminal."""

    ending: Ending
    lastseq: int
    failedsteps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunStep:
    """Start an attempt. `since`: the attempt that it goes on with, where a restart of the Builder cut that
    off; else its own number.
    """

    index: int
    attempt: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class StopStep:
    """Tell the running attempt to end."""

    why: Stopping


@dataclass(frozen=True, slots=True)
class ArmRetry:
    """Come back with RetryDue(attempt) after the step's delay for its n-th retry (jitter is the shell's)."""

    attempt: int
    delay_ms: int


@dataclass(frozen=True, slots=True)
class TellChild:
    """Pass Pause or Start on to the child recipe that the step follows."""

    verb: Verb


@dataclass(frozen=True, slots=True)
class End:
    """Come back with Ended as soon as every Data of the bake is stored."""

    ending: Ending


Effect = Say | SayOutcome | SayEnd | RunStep | StopStep | ArmRetry | TellChild | End


class Refused(Exception):
    """Raised when a control does not apply; nothing has changed. What it holds goes into the Result."""

    def __init__(self, code: Code, summary: str, retry_ms: int | None = None) -> None:
        super().__init__(summary)
        self.code, self.summary, self.retry_ms = code, summary, retry_ms


def ack(control: Control | PendingPause, outcome: AckOutcome) -> Say:
    """The Status that acknowledges a control."""
    sent_as = control.sent_as if isinstance(control, Control) else control.verb
    return Say(
        "ack",
        f"{sent_as} by {control.issuedby}: {outcome}",
        {
            "outcome": str(outcome),
            "verb": sent_as,
            "ctrlseq": control.ctrlseq,
            "issuedby": control.issuedby,
        },
    )
