"""Which lane runs what, and which model is loaded where: pure. Facts in, one decision out.

A run goes to an idle lane that has the model; a LOAD is a step of its own, during which the request stays
free to go to any lane that has the model sooner. One LOAD of a model at a time. A model that has a lane is
loaded on a further idle one where it kept its lanes busy, or where its queue is longer than the LOAD takes;
never at the cost of another model. Where memory is short, what was used longest ago goes, what nobody waits
for first. Lanes that refuse a model (quarantine) are not used for it, degraded ones only where all are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from bakemesh.synapse.lanes.base import LaneView
from bakemesh.workerpool.models import ModelKey

KEPT_BUSY = 0.7  # of a lane: from here on a model gets another one
SHORT_PREFIX = 32  # bytes: every chat begins alike for a few tokens


class Why(StrEnum):
    """Why nothing can be done now, or ever."""

    NONE_UP = "none_up"  # no lane's worker lives
    BUSY = "busy"  # those that may run it are occupied
    LOADING = "loading"
    MEMORY = "memory"  # what could go is in use
    REFUSED = "refused"  # it is quarantined wherever it could run
    INCAPABLE = "incapable"  # no lane knows this type of request
    MISPLACED = "misplaced"  # too little of it would run on the lanes' accelerators


@dataclass(frozen=True, slots=True)
class Run:
    """Give it to this lane."""

    lane: str


@dataclass(frozen=True, slots=True)
class Load:
    """Load the model there."""

    lane: str
    spread: bool = False


@dataclass(frozen=True, slots=True)
class Unload:
    """Make room first."""

    lane: str
    model: ModelKey


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing now."""

    why: Why


Decision = Run | Load | Unload | Wait


@dataclass(frozen=True, slots=True)
class Prompt:
    """The last prompt that a lane read: its KV is there. `at`: when."""

    model: ModelKey
    ids: bytes
    at: float
    session: bytes | None = None


class Wanted(NamedTuple):
    """What has to run. `prompt`: its ids, of a generation. `backlog_s`: of all that waits for the model.
    `load_s`: what its LOAD took, 0 where that is not known."""

    model: ModelKey
    needs: str | None = None
    avoid: str | None = None
    prompt: bytes | memoryview | None = None
    session: bytes | None = None
    backlog_s: float = 0.0
    load_s: float = 0.0


@dataclass(slots=True)
class Ground:
    """The lanes as they are. `taken`: not to be given anything, whatever their view says. `loading`:
    model → lane. `refused`: (lane, model) that cannot be, beside what views say; `shunned`: that should
    not be, where there is another lane. `demand`: of a model, in lanes. `used`: when (lane, model) ran
    last. `least_shares`: below which a lane is not used for a model. `waiting`: models somebody waits
    for. `held`: a model that goes first waits for memory, so no other one is loaded on lanes of this
    process."""

    views: Sequence[LaneView]
    taken: Collection[str] = ()
    loading: Mapping[ModelKey, str] = field(default_factory=dict)
    refused: Collection[tuple[str, ModelKey]] = ()
    shunned: Collection[tuple[str, ModelKey]] = ()
    demand: Callable[[ModelKey], float] = lambda model: 0.0
    used: Mapping[tuple[str, ModelKey], float] = field(default_factory=dict)
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    waiting: Collection[ModelKey] = ()
    sizes: Mapping[ModelKey, int] = field(default_factory=dict)
    least_shares: Mapping[ModelKey, float] = field(default_factory=dict)
    memory: int | None = None
    held: bool = False

    def free(self, view: LaneView) -> bool:
        """Whether it would take something."""
        return view.idle and view.up and view.name not in self.taken


def plan(wanted: Wanted, ground: Ground) -> Decision:
    """What to do for it now."""
    lanes = candidates(wanted, ground)
    if isinstance(lanes, Why):
        return Wait(lanes)
    model = wanted.model
    homes = [view for view in lanes if model in view.loaded]
    ready = [view for view in homes if ground.free(view)]
    if ready:
        return Run(_nearest(wanted, ready, ground).name if len(ready) > 1 else ready[0].name)
    if model in ground.loading:
        return Wait(Why.BUSY if homes else Why.LOADING)
    empty = [view for view in lanes if ground.free(view)]
    if not empty or (homes and not _worth(wanted, len(homes), ground)):
        return Wait(Why.BUSY)
    return _load(wanted, empty, ground, spread=bool(homes))


def candidates(wanted: Wanted, ground: Ground) -> list[LaneView] | Why:
    """The lanes that may run it, idle or not; or why there are none."""
    up = [view for view in ground.views if view.up]
    if not up:
        return Why.NONE_UP
    able = up if wanted.needs is None else [view for view in up if wanted.needs in view.types]
    if not able:
        return Why.INCAPABLE
    if (least := ground.least_shares.get(wanted.model)) is not None:
        able = [view for view in able if view.placement_share is None or view.placement_share >= least]
        if not able:
            return Why.MISPLACED
    willing = [view for view in able if wanted.model not in view.refused]
    if ground.refused:
        willing = [view for view in willing if (view.name, wanted.model) not in ground.refused]
    if not willing:
        return Why.REFUSED
    lanes = [view for view in willing if not view.degraded] or willing
    if ground.shunned:
        lanes = [view for view in lanes if (view.name, wanted.model) not in ground.shunned] or lanes
    if wanted.avoid is not None:
        lanes = [view for view in lanes if view.name != wanted.avoid] or lanes
    return lanes


def shared_prefix(one: bytes | memoryview, other: bytes | memoryview) -> int:
    """How many bytes two prompts begin alike; a whole number of ids."""
    low, high = 0, min(len(one), len(other)) // 4
    a, b = memoryview(one), memoryview(other)
    while low < high:
        middle = (low + high + 1) // 2
        if a[4 * low : 4 * middle] == b[4 * low : 4 * middle]:
            low = middle
        else:
            high = middle - 1
    return 4 * low


def _nearest(wanted: Wanted, ready: Sequence[LaneView], ground: Ground) -> LaneView:
    """Of a generation the lane that holds most of its prompt; else the one whose own was read longest ago, so
    that other chats keep theirs. Anything else: the one where the model ran last, which is warm."""
    if wanted.prompt is None:
        return max(ready, key=lambda view: ground.used.get((view.name, wanted.model), 0.0))

    def worth(view: LaneView) -> tuple[int, bool, float]:
        last = ground.prompts.get(view.name)
        if last is None or last.model != wanted.model:
            return 0, False, 0.0
        alike = shared_prefix(wanted.prompt or b"", last.ids)
        same = wanted.session is not None and last.session == wanted.session
        return alike if alike > SHORT_PREFIX else 0, same, -last.at

    return max(ready, key=worth)


def _worth(wanted: Wanted, homes: int, ground: Ground) -> bool:
    """Whether a model that has lanes should have one more."""
    if ground.demand(wanted.model) >= KEPT_BUSY * homes:
        return True
    return wanted.load_s > 0 and wanted.backlog_s / homes > wanted.load_s


def _load(wanted: Wanted, empty: Sequence[LaneView], ground: Ground, *, spread: bool) -> Decision:
    """On the lane whose own models are needed least, with room made where there is none."""
    size = ground.sizes.get(wanted.model, 0)

    def busy(view: LaneView) -> tuple[float, int]:
        return sum(ground.demand(model) for model in view.loaded), len(view.loaded)

    for view in sorted(empty, key=busy):
        if ground.memory is None or not view.local:
            return Load(view.name, spread)
        if ground.held:
            continue
        if _resident(ground) + size <= ground.memory:
            return Load(view.name, spread)
        if spread:
            return Wait(Why.BUSY)
        victim = _victim(wanted.model, ground)
        if victim is not None:
            return victim
    return Wait(Why.MEMORY)


def _resident(ground: Ground) -> int:
    """Bytes of models on this process's lanes, with those that are on their way."""
    local = {view.name for view in ground.views if view.local}
    held = {(view.name, model) for view in ground.views if view.local and view.up for model in view.loaded}
    held |= {(lane, model) for model, lane in ground.loading.items() if lane in local}
    return sum(ground.sizes.get(model, 0) for _, model in held)


def _victim(wanted: ModelKey, ground: Ground) -> Unload | None:
    """What goes first: what nobody waits for, then what ran longest ago. Only from lanes that are idle."""
    found = [
        (model in ground.waiting, ground.used.get((view.name, model), 0.0), view.name, model)
        for view in ground.views
        if view.local and ground.free(view)
        for model in view.loaded
        if model != wanted and model not in ground.loading
    ]
    if not found:
        return None
    first = min(found, key=lambda each: each[:3])
    return Unload(first[2], first[3])
