"""LOADs and UNLOADs: models into lanes' memory and out of it.

A LOAD occupies its lane and nobody's request. One that crashes is tried once more, elsewhere where there is
an elsewhere; where none can be had, `failed` ends who waits for the model. A further copy of a model that has
a lane already is nobody's loss.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.synapse.lanes.base import LaneFailed, Lanes
from bakemesh.synapse.scheduling.asks import CONTROL
from bakemesh.synapse.scheduling.estimates import Estimates
from bakemesh.synapse.scheduling.failing import Then, then
from bakemesh.synapse.scheduling.roster import Busy, Roster
from bakemesh.synapse.scheduling.settings import Settings
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.models import ModelKey

log = logging.getLogger(__name__)
_UNLOAD_S = 30.0


class Loading:
    """See the module. `time`: the clock."""

    def __init__(
        self,
        lanes: Lanes,
        settings: Settings,
        roster: Roster,
        estimates: Estimates,
        time: Callable[[], float],
        failed: Callable[[ModelKey, ErrorObject], None],
    ) -> None:
        self._lanes, self._settings, self._roster, self._estimates = lanes, settings, roster, estimates
        self._time, self._on_failed = time, failed
        self._crashed: dict[ModelKey, int] = {}

    async def load(self, lane: str, model: ModelKey, *, spread: bool) -> None:
        """To be run at once: the lane is taken from the first call on (`begin`)."""
        began = self._time()
        try:
            failed = await self._tried(self._lanes.load(lane, model, Call(within_s=self._settings.load_s)))
        finally:
            self._roster.loading.pop(model, None)
            self._roster.give_back(lane)
        if failed is None:
            self._loaded(lane, model, began)
        else:
            self._failed(lane, model, failed, spread=spread)

    async def unload(self, lane: str, model: ModelKey) -> None:
        """The same, the other way."""
        try:
            failed = await self._tried(self._lanes.unload(lane, model, Call(within_s=_UNLOAD_S)))
        finally:
            self._roster.give_back(lane)
        self._roster.used.pop((lane, model), None)
        self._roster.refresh()
        view = self._roster.view(lane)
        if failed is not None or (view is not None and model in view.loaded):
            log.warning("lane %s did not unload model %s: %s", lane, model.id, failed or "it still has it")
            self._roster.pause(lane)

    def begin(self, lane: str, model: ModelKey, now: float, *, load: bool) -> None:
        """The lane is taken for it."""
        if load:
            self._roster.loading[model] = lane
        est_s = self._estimates.pace(model.id, "load").cost_s if load else 0.0
        self._roster.take(lane, Busy(CONTROL, 0, now, est_s))

    def _loaded(self, lane: str, model: ModelKey, began: float) -> None:
        now, roster = self._time(), self._roster
        self._crashed.pop(model, None)
        self._estimates.learn(model.id, "load", 1, now - began, now)
        roster.used[lane, model] = now
        roster.refresh()
        view = roster.view(lane)
        if view is not None and model not in view.loaded:
            roster.pause(lane)  # its view is late, or it died: not loaded again before that is known
        else:
            roster.worked(lane)

    def _failed(self, lane: str, model: ModelKey, failed: LaneFailed, *, spread: bool) -> None:
        roster, error = self._roster, failed.error
        crashes = self._crashed.get(model, 0)
        match then(failed, attempt=min(crashes, 1), seen=False):
            case Then.ELSEWHERE if error.code == Code.PROBE_REQUIRED:
                roster.refuse(lane, model, error)
            case Then.ELSEWHERE:
                roster.pause(lane)
            case Then.REPEAT:
                self._crashed[model] = crashes + 1
                roster.shun(lane, model)
            case Then.END:
                log.warning("lane %s could not load model %s: %s", lane, model.id, error.message)
                self._crashed.pop(model, None)
                roster.shun(lane, model)
                if not spread:
                    self._on_failed(model, error)

    async def _tried(self, step: Awaitable[None]) -> LaneFailed | None:
        try:
            await step
        except LaneFailed as failed:
            return failed
        except Exception as error:
            log.error("a model could not be loaded or unloaded, by a defect: %r", error, exc_info=error)
            return LaneFailed(error_of(Code.INFERENCE_FAILED, f"the module failed: {type(error).__name__}"))
        return None
