"""The crash budget: pure. Who crashed when and `now` in, standing out.

One (model, config):

    FREE ── the Nth charge within the window ──→ QUARANTINED ── a probe passed ──→ ON PROBATION ── window ──→
                                                  ↑   │ a probe crashed: twice the pause        │         FREE
                                                  └───┴───────────────── one charge ────────────┘

All work of the pool: M charges within the window make it degraded, until a window without any.

Left out: what is charged (see `charging`), running probes, keeping it over a restart (see `quarantine`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """N `crashes` in `window_s` quarantine a (model, config); `lane_crashes` M over all degrade the pool."""

    crashes: int = 3
    lane_crashes: int = 4
    window_s: float = 60.0
    probe_s: float = 60.0
    probe_most_s: float = 900.0

    def __post_init__(self) -> None:
        """Raises ValueError for rules that contradict themselves."""
        if self.crashes < 1 or self.lane_crashes < 1:
            raise ValueError("a crash budget needs crashes and lane_crashes of 1 or more")
        if self.window_s <= 0 or not 0 < self.probe_s <= self.probe_most_s:
            raise ValueError("a crash budget needs times above 0, and probe_s of at most probe_most_s")


@dataclass(frozen=True, slots=True)
class Standing:
    """What is remembered of one (model, config). `probe_at`: quarantined, and due for a probe then."""

    charges: tuple[float, ...] = ()
    probe_at: float | None = None
    in_a_row: int = 0  # quarantines since it was last free
    probation_until: float | None = None
    crashed_in: str = ""  # what it crashed in last: a probe tries that

    @property
    def quarantined(self) -> bool:
        """Whether requests are refused."""
        return self.probe_at is not None


def charge(rules: Rules, standing: Standing, now: float, crashed_in: str) -> Standing:
    """After a crash that counts."""
    if standing.quarantined:
        return standing  # it was on its way before
    if standing.probation_until is not None and now < standing.probation_until:
        return _quarantine(rules, replace(standing, crashed_in=crashed_in), now)
    recent = (*_within(rules, standing.charges, now), now)
    if len(recent) >= rules.crashes:
        return _quarantine(rules, Standing(crashed_in=crashed_in), now)
    return Standing(charges=recent, crashed_in=crashed_in)


def probe_passed(rules: Rules, standing: Standing, now: float) -> Standing:
    """After a probe that ended without a crash; of one that is not quarantined, nothing changes."""
    if not standing.quarantined:
        return standing
    return replace(standing, probe_at=None, charges=(), probation_until=now + rules.window_s)


def probe_crashed(rules: Rules, standing: Standing, now: float) -> Standing:
    """After a probe that crashed."""
    return _quarantine(rules, standing, now) if standing.quarantined else standing


def imposed(rules: Rules, now: float) -> Standing:
    """Of one that nobody can tell anything about: quarantined, for safety."""
    return _quarantine(rules, Standing(), now)


def _quarantine(rules: Rules, standing: Standing, now: float) -> Standing:
    pause = rules.probe_s
    for _ in range(standing.in_a_row):
        pause = min(pause * 2, rules.probe_most_s)
        if pause == rules.probe_most_s:
            break
    return Standing(probe_at=now + pause, in_a_row=standing.in_a_row + 1, crashed_in=standing.crashed_in)


@dataclass(frozen=True, slots=True)
class Lane:
    """What is remembered of all work."""

    charges: tuple[float, ...] = ()
    degraded: bool = False


def lane_charged(rules: Rules, lane: Lane, now: float) -> Lane:
    """After a crash that counts, whatever it was in."""
    recent = (*_within(rules, lane.charges, now), now)
    return Lane(recent[-rules.lane_crashes :], lane.degraded or len(recent) >= rules.lane_crashes)


def lane_at(rules: Rules, lane: Lane, now: float) -> Lane:
    """What time alone makes of it: well again once the window is clean."""
    recent = _within(rules, lane.charges, now)
    return Lane(recent, lane.degraded and bool(recent))


def _within(rules: Rules, charges: tuple[float, ...], now: float) -> tuple[float, ...]:
    return tuple(at for at in charges if now - at < rules.window_s)
