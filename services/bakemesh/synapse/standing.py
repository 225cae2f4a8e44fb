"""How the node is, from what is known of its lanes and models: pure. Nobody is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from bakemesh.synapse.lanes.base import LaneView
from bakemesh.synapse.models.manifest import Manifest
from bakemesh.workerpool.models import ModelKey

State = Literal["ok", "degraded", "down", "draining"]
OK: Final = "ok"
DEGRADED: Final = "degraded"
DOWN: Final = "down"
DRAINING: Final = "draining"
READY, LOADED, QUARANTINED = "ready", "loaded", "quarantined"


def state_of(views: Sequence[LaneView], *, draining: bool, refused: bool) -> tuple[State, str | None]:
    """The node's state, and what is wrong in words. `refused`: a model of the node is quarantined."""
    if draining:
        return DRAINING, "the module is ending"
    up = [view for view in views if view.up]
    if not up:
        reasons = sorted({view.problem for view in views if view.problem})
        return DOWN, "; ".join(["no lane is up", *reasons[:3]])
    problems = []
    if len(up) < len(views):
        problems.append(f"{len(views) - len(up)} of {len(views)} lanes are not up")
    if worn := [view.name for view in up if view.degraded]:
        problems.append(f"crashed too often: {', '.join(worn[:5])}")
    if refused:
        problems.append("a model is quarantined: see the models")
    return (DEGRADED, "; ".join(problems)) if problems else (OK, None)


def quarantined(key: ModelKey, views: Iterable[LaneView]) -> bool:
    """Whether lanes that are up refuse the model, and none takes it."""
    up = [view for view in views if view.up]
    return bool(up) and all(key in view.refused for view in up)


def model_entry(alias: str, manifest: Manifest, key: ModelKey, views: Sequence[LaneView]) -> dict[str, Any]:
    """A model as ModelList and HealthStamp have it."""
    lanes = sum(key in view.loaded for view in views if view.up)
    state = QUARANTINED if quarantined(key, views) else LOADED if lanes else READY
    return {
        "alias": alias,
        "digest": manifest.digest,
        "kind": manifest.kind,
        "dims": manifest.dims,
        "context": manifest.limit,
        "pooling": manifest.pooling,
        "weights": manifest.weights,
        "bytes": manifest.bytes,
        "state": state,
        "lanes": lanes,
    }


def lane_entry(view: LaneView) -> dict[str, Any]:
    """A lane as HealthStamp has it. `age_ms`: of what is told."""
    entry: dict[str, Any] = {
        "lane": view.name,
        "node": view.node_id,
        "state": view.state,
        "up": int(view.up),
        "idle": int(view.idle),
        "degraded": int(view.degraded),
        "loaded": len(view.loaded),
        "quarantined": len(view.refused),
        "age_ms": round((view.stamp_age_s or 0.0) * 1000),
    }
    more = {"engine": view.engine, "rss_mb": view.rss_mb, "problem": view.problem}
    return entry | {name: value for name, value in more.items() if value is not None}
