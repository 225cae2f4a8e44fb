"""What follows from a killed or dead worker: pure. Facts in, verdict out.

- A request is charged once, however often it is run; a batch of several callers is one charge. A LOAD is a
  request of its own and is charged each time; a worker that dies idle, at a PING or at its start charges no
  model, but the pool. Never charged: an ERR, a cancel that was answered, a caller's own deadline.
- A run is repeated once, and only after a crash: not after a timeout, not when the caller has gone or has
  seen a token, not when somebody upstream repeated it (`attempt`), or does (`may_repeat`). A batch is run
  again caller by caller, also where somebody upstream repeats: whose items did it is found out here alone.
- A request that kills a worker which runs nothing else is a suspect; a suspect that does it again is poison.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Why a worker is no more."""

    CRASH = "crash"  # exit, or the end of its connection
    VIOLATION = "violation"  # it broke the protocol, and was killed
    TIMEOUT = "timeout"  # killed at its deadline
    CANCEL = "cancel"  # killed, for a CANCEL was not answered
    CLOSED = "closed"  # by the pool itself


class Again(StrEnum):
    """Whether it is run again."""

    NO = "no"
    ONCE = "once"
    APART = "apart"  # each caller's share by itself


RUNS = frozenset({"embed", "rerank", "generate"})
NO_MODEL = frozenset({"start", "idle", "ping"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`doing`: the stage. `callers`: whose shares the request holds. `suspect`: the one share has struck
    before. `seen`: the caller has a token. `gone`: nobody waits."""

    cause: Cause
    doing: str
    attempt: int = 0
    callers: int = 1
    suspect: bool = False
    seen: bool = False
    gone: bool = False
    may_repeat: bool = True
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`charge`: the (model, config)'s budget; `charge_lane`: the pool's. `suspects`: note the shares."""

    charge: bool
    charge_lane: bool
    again: Again = Again.NO
    suspects: bool = False
    poison: bool = False


def judge(facts: Facts) -> Verdict:
    """What becomes of the request, and who pays."""
    if facts.cause is Cause.CLOSED:
        return Verdict(charge=False, charge_lane=False)
    if facts.doing in NO_MODEL:
        return Verdict(charge=False, charge_lane=True)
    if facts.probe:
        return Verdict(charge=False, charge_lane=True)  # a probe that crashes has its own rule
    run = facts.doing in RUNS
    alone = run and facts.callers == 1
    fatal = facts.cause in (Cause.CRASH, Cause.VIOLATION, Cause.TIMEOUT)
    poison = alone and fatal and (facts.attempt > 0 or facts.suspect)
    charge = not run or (facts.attempt == 0 and not (alone and facts.suspect))
    repeat = (
        facts.cause in (Cause.CRASH, Cause.VIOLATION)
        and (facts.may_repeat or facts.callers > 1)
        and facts.attempt == 0
        and not (facts.seen or facts.gone or poison)
    )
    again = Again.NO if not repeat else Again.APART if facts.callers > 1 else Again.ONCE
    return Verdict(charge, charge, again, suspects=run and fatal and not poison, poison=poison)
