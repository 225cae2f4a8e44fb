"""What the core knows of its lanes: their views, what it gave them, and which of them it leaves alone for
now.

Guarantees: a lane that was taken is not free before it is given back, whatever its view says; a pause, a
refusal and a shunning end by themselves. Left out: what is decided with all that (`placement`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bakemesh.protocol.inference.errors import ErrorObject
from bakemesh.synapse.lanes.base import Lanes, LaneView
from bakemesh.synapse.scheduling.demand import Demand
from bakemesh.synapse.scheduling.placement import Ground, Prompt
from bakemesh.synapse.scheduling.settings import Settings
from bakemesh.workerpool.models import ModelKey

REFUSED_S = 1.0  # a lane refused a model before its view said so


@dataclass(slots=True)
class Busy:
    """What a lane does. `est_s`: how long it will likely take, 0 where that is not known."""

    work_class: str
    tokens: int
    began: float
    est_s: float = 0.0


class Roster:
    """See the module. `changed` is called whenever a lane may be free that was not."""

    def __init__(
        self, lanes: Lanes, settings: Settings, clock: asyncio.AbstractEventLoop, changed: Callable[[], None]
    ) -> None:
        self._lanes, self._settings, self._clock, self._changed = lanes, settings, clock, changed
        self.views: Sequence[LaneView] = ()
        self.up = 0
        self.all_local = True
        self.busy: dict[str, Busy] = {}
        self.loading: dict[ModelKey, str] = {}
        self.sizes: dict[ModelKey, int] = {}
        self.least_shares: dict[ModelKey, float] = {}
        self.used: dict[tuple[str, ModelKey], float] = {}
        self.prompts: dict[str, Prompt] = {}
        self.demand = Demand()
        self.refused: dict[tuple[str, ModelKey], ErrorObject] = {}
        self._shunned: dict[tuple[str, ModelKey], int] = {}
        self._pauses: dict[str, int] = {}  # in a row
        self._taken: set[str] = set()
        self._free: int | None = None  # counted when it is asked for
        self._stale = True
        lanes.watch(self._on_change)

    def _on_change(self) -> None:
        self._stale = True
        self._changed()

    def refresh(self) -> None:
        """Looks at the lanes, where they changed since the last look."""
        if not self._stale:
            return
        self._stale, self._free = False, None
        views = self._lanes.views()
        if views is self.views:
            return
        self.views = views
        self.up = len([view for view in views if view.up])
        self.all_local = all(view.local for view in views)
        if self.prompts:
            for view in views:
                if not view.up:
                    self.prompts.pop(view.name, None)  # with its worker went its KV

    @property
    def free(self) -> int:
        """Lanes that would take something."""
        found = self._free
        if found is None:
            taken = self._taken
            found = len([1 for view in self.views if view.idle and view.up and view.name not in taken])
            self._free = found
        return found

    def ready(self, model: ModelKey) -> int:
        """Those of them that have the model."""
        taken = self._taken
        ready = [view for view in self.views if view.idle and view.up and model in view.loaded]
        return len([view for view in ready if view.name not in taken])

    def view(self, lane: str) -> LaneView | None:
        """The view of a lane."""
        return next((view for view in self.views if view.name == lane), None)

    def ground(self, now: float, waiting: frozenset[ModelKey] = frozenset()) -> Ground:
        """What placement decides with."""
        return Ground(
            self.views,
            taken=self._taken,
            loading=self.loading,
            refused=self.refused,
            shunned=self._shunned,
            demand=lambda model: self.demand.lanes(model, now),
            used=self.used,
            prompts=self.prompts,
            waiting=waiting,
            sizes=self.sizes,
            least_shares=self.least_shares,
            memory=self._settings.memory_bytes,
        )

    # -- what it does

    def take(self, lane: str, busy: Busy) -> None:
        """It was given something."""
        self._taken.add(lane)
        self._free = None
        self.busy[lane] = busy

    def give_back(self, lane: str) -> Busy:
        """It is done with it."""
        self._taken.discard(lane)
        self._stale, self._free = True, None
        return self.busy.pop(lane)

    def left_s(self, now: float) -> list[float]:
        """Of each thing that runs, how long it will likely take yet."""
        return [max(0.0, each.est_s - (now - each.began)) for each in self.busy.values()]

    @property
    def tokens(self) -> int:
        """Of all that runs."""
        return sum(each.tokens for each in self.busy.values())

    # -- what is left alone

    def worked(self, lane: str) -> None:
        """It took what it was given: its next pause is a short one again."""
        self._pauses.pop(lane, None)

    def pause(self, lane: str) -> None:
        """It refused: it is asked again a little later, each time in a row twice as late."""
        row = self._pauses.get(lane, 0)
        self._pauses[lane] = row + 1
        self._taken.add(lane)
        self._free = None
        settings = self._settings
        wait_s = min(settings.lane_pause_most_s, settings.lane_pause_s * 2 ** min(row, 16))
        self._clock.call_later(wait_s, self._resume, lane)

    def _resume(self, lane: str) -> None:
        if lane not in self.busy:
            self._taken.discard(lane)
            self._free = None
            self._changed()

    def refuse(self, lane: str, model: ModelKey, error: ErrorObject) -> None:
        """It says that the model is quarantined there."""
        self.refused[lane, model] = error
        self._clock.call_later(REFUSED_S, self._unrefuse, lane, model)

    def _unrefuse(self, lane: str, model: ModelKey) -> None:
        self.refused.pop((lane, model), None)
        self._changed()

    def shun(self, lane: str, model: ModelKey) -> None:
        """It could not load the model: others are better, where there are any."""
        self._shunned[lane, model] = self._shunned.get((lane, model), 0) + 1
        self._clock.call_later(self._settings.shun_s, self._unshun, lane, model)

    def _unshun(self, lane: str, model: ModelKey) -> None:
        left = self._shunned.get((lane, model), 1) - 1
        if left > 0:
            self._shunned[lane, model] = left
        else:
            self._shunned.pop((lane, model), None)
            self._changed()
