"""The policy, the record it keeps, and the one function.

    ends ── not to be restarted (`when`, `final_codes`) ──────────→ LetBe
      ├── at most `max_restarts` restarts in `window_s` ──────────→ Restart, after a growing, jittered pause
      ├── more ────────────────────────────────────────────────────→ Quarantine, a probe after `probe_s`
      └── a probe that ends before it was stable ──────────────────→ Quarantine, a probe after twice as long,
      …

What ran for `stable_s` has proved itself: its record is clean again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class When(StrEnum):
    """Whether something is restarted at all; OTP's words."""

    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How to restart. Times in seconds; `max_restarts` within `window_s` is the crash budget."""

    when: When = When.ALWAYS
    max_restarts: int = 3
    window_s: float = 60.0
    stable_s: float = 60.0
    first_s: float = 0.2
    factor: float = 2.0
    most_s: float = 30.0
    jitter: float = 0.25  # a pause is shortened by up to this share of itself
    probe_s: float = 60.0
    probe_most_s: float = 900.0
    never_quarantine: bool = False
    final_codes: frozenset[int] = frozenset()  # exit codes that mean: do not start me again

    def __post_init__(self) -> None:
        """Raises ValueError for a policy that contradicts itself."""
        positive = (self.window_s, self.stable_s, self.first_s, self.most_s, self.probe_s, self.probe_most_s)
        if min(positive) <= 0 or self.max_restarts < 0:
            raise ValueError("a restart policy needs times above 0 and max_restarts of 0 or more")
        if self.factor < 1 or not 0 <= self.jitter <= 1:
            raise ValueError("a restart policy needs a factor of 1 or more and a jitter from 0 to 1")
        if self.first_s > self.most_s or self.probe_s > self.probe_most_s:
            raise ValueError("a restart policy's first pause is at most its longest")


# A node is nothing without its Builder: never quarantined, never waited for long. What a new start cannot
# mend: exit 2, settings that are refused; 6, the node has a Builder already. 7: the node was asked down.
BUILDER = Policy(never_quarantine=True, most_s=5.0, final_codes=frozenset({2, 6, 7}))


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of one thing between two ends."""

    restarts: tuple[float, ...] = ()  # when it was restarted, within the window
    in_a_row: int = 0  # ends since it was last stable
    probes: int = 0  # quarantines since it was last stable; above 0: the run that ended was a probe


@dataclass(frozen=True, slots=True)
class Ended:
    """The facts of one end. `now` is monotonic, `ran_s` how long it ran, `draw` random from [0, 1)."""

    code: int  # exit code; minus the signal after one
    ran_s: float
    now: float
    draw: float


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again after `pause_s`."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class Quarantine:
    """It ended too often: leave it alone, and try one start (a probe) after `probe_s`."""

    probe_s: float


@dataclass(frozen=True, slots=True)
class LetBe:
    """Do not start it again, for `reason`."""

    reason: str


Decision = Restart | Quarantine | LetBe


def decide(policy: Policy, record: Record, ended: Ended) -> tuple[Decision, Record]:
    """What to do after an end, and the record to keep."""
    if policy.when is When.NEVER:
        return LetBe("its policy is never to restart"), record
    if policy.when is When.ON_FAILURE and ended.code == 0:
        return LetBe("it ended well"), record
    if ended.code in policy.final_codes:
        return LetBe(f"exit code {ended.code} means not to start it again"), record

    if ended.ran_s >= policy.stable_s:
        record = Record(restarts=record.restarts)
    recent = tuple(at for at in record.restarts if ended.now - at < policy.window_s)
    in_a_row = record.in_a_row + 1
    spent = record.probes > 0 or len(recent) >= policy.max_restarts
    if spent and not policy.never_quarantine:
        pause = _pause(policy.probe_s, 2.0, record.probes, policy.probe_most_s, policy.jitter, ended.draw)
        return Quarantine(pause), Record(recent, in_a_row, record.probes + 1)
    pause = _pause(policy.first_s, policy.factor, in_a_row - 1, policy.most_s, policy.jitter, ended.draw)
    kept = (*recent, ended.now)[-max(policy.max_restarts, 1) :]
    return Restart(pause), Record(kept, in_a_row, 0)


def _pause(first: float, factor: float, times: int, most: float, jitter: float, draw: float) -> float:
    grown = first
    for _ in range(times):
        grown *= factor
        if grown >= most:
            grown = most
            break
        if factor == 1:
            break
    return grown * (1 - jitter * draw)
