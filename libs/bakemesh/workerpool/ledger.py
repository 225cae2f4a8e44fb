"""The pool's memory: budgets, strikes and costs together, and what of it survives a restart. No I/O; `now` is
monotonic and comes from outside.
"""

from __future__ import annotations

from bakemesh.workerpool import budget, deadlines
from bakemesh.workerpool.budget import Standing
from bakemesh.workerpool.deadlines import Costs, Work
from bakemesh.workerpool.models import ModelKey
from bakemesh.workerpool.quarantine import Book, Kept
from bakemesh.workerpool.strikes import Strikes

FREE = Standing()
NO_COSTS = Costs()


class Ledger:
    """By (model, config). `budgets` None: everybody is always free."""

    def __init__(
        self, budgets: budget.Rules | None, limits: deadlines.Rules, poison_s: float, book: Book, now: float
    ) -> None:
        self._budgets, self._limits = budgets, limits
        self._standings: dict[str, Standing] = {
            name: Standing(probe_at=now + kept.due_s, in_a_row=kept.in_a_row, crashed_in=kept.crashed_in)
            for name, kept in book.kept.items()
        }
        self._closed, self._passed = book.closed, set(book.passed)
        self._costs: dict[tuple[str, str], Costs] = {}
        self._lane = budget.Lane()
        self.strikes = Strikes(poison_s)

    def standing(self, key: ModelKey, now: float) -> Standing:
        """How it stands."""
        if self._budgets is None:
            return FREE
        found = self._standings.get(key.id)
        if found is None:
            if not self._closed or key.id in self._passed:
                return FREE
            found = self._standings[key.id] = budget.imposed(self._budgets, now)
        return found

    def refused_for(self, key: ModelKey, now: float) -> float | None:
        """Seconds to its next probe where it is quarantined, else None."""
        if self._budgets is None:
            return None
        at = self.standing(key, now).probe_at
        return None if at is None else max(0.0, at - now)

    def charge(self, key: ModelKey, now: float, crashed_in: str) -> bool:
        """A crash that counts; whether that quarantined it."""
        if self._budgets is None:
            return False
        before = self.standing(key, now)
        after = self._standings[key.id] = budget.charge(self._budgets, before, now, crashed_in)
        return after.quarantined and not before.quarantined

    def charge_lane(self, now: float) -> None:
        """A crash that counts against all work."""
        if self._budgets is not None:
            self._lane = budget.lane_charged(self._budgets, self._lane, now)

    def probed(self, key: ModelKey, now: float, *, passed: bool) -> None:
        """A probe ended."""
        if self._budgets is None:
            return
        rule = budget.probe_passed if passed else budget.probe_crashed
        self._standings[key.id] = rule(self._budgets, self.standing(key, now), now)
        if passed and self._closed:
            self._passed.add(key.id)

    def degraded(self, now: float) -> bool:
        """Whether crashes over all work are too many."""
        if self._budgets is None:
            return False
        self._lane = budget.lane_at(self._budgets, self._lane, now)
        return self._lane.degraded

    def book(self, now: float) -> Book:
        """What is to survive a restart."""
        kept = {
            name: Kept(max(0.0, standing.probe_at - now), standing.in_a_row, standing.crashed_in)
            for name, standing in self._standings.items()
            if standing.probe_at is not None
        }
        return Book(kept, self._closed, frozenset(self._passed))

    def deadline(self, key: ModelKey, kind: str, work: Work) -> float:
        """For a run."""
        return deadlines.run_deadline(self._limits, self._costs.get((key.id, kind), NO_COSTS), work)

    def measured(self, key: ModelKey, kind: str, work: Work, took_s: float) -> None:
        """A run was answered."""
        at = (key.id, kind)
        self._costs[at] = deadlines.measured(self._costs.get(at, NO_COSTS), work, took_s)

    def overrun(self, key: ModelKey, kind: str, work: Work, waited_s: float) -> None:
        """A run was not answered."""
        at = (key.id, kind)
        self._costs[at] = deadlines.overrun(self._costs.get(at, NO_COSTS), work, waited_s)
