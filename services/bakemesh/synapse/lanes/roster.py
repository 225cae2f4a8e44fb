"""What is known of the lanes on the bus, by their Status and by this module's own requests: pure.

    a Status of another run, or `closed`        ─→ whoever had a request there has none any more
    silence for SILENT_S                        ─→ the lane is forgotten, and its request too
    a Status that knows nothing of the request  ─→ its answer was lost on the way (LOST_S)

A lane's own answer counts as news too: it is idle then, before its Status says so. Guarantees: an older
Status never undoes a newer one; a lane is idle only where the last news says it, and no request of this
module is there. Left out: I/O, and which lane is chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bakemesh.protocol.inference.lanes import LaneStatus
from bakemesh.synapse.lanes.base import LaneView
from bakemesh.workerpool import ModelKey

SILENT_S = 6.0
LOST_S = 3.0  # for a request to be seen in a Status: the way there, and two of them
UP = ("idle", "busy")
UNKNOWN = "unknown"  # not heard of since the link was lost, or since it refused


@dataclass(slots=True)
class Known:
    """A lane. `heard`: when its last Status came; `since`: when this module's request went there."""

    node_id: str
    lane: str
    party: str
    run: str
    serial: int
    heard: float
    state: str
    status: LaneStatus
    loaded: set[ModelKey] = field(default_factory=set)
    refused: set[ModelKey] = field(default_factory=set)
    since: float | None = None

    @property
    def name(self) -> str:
        """Unique among all lanes."""
        return f"{self.node_id}/{self.lane}"

    @property
    def host(self) -> tuple[str, str]:
        """The host that it is of, in this life."""
        return self.node_id, self.run

    def view(self, now: float, own_node_id: str) -> LaneView:
        """As the module sees it."""
        status = self.status
        return LaneView(
            name=self.name,
            node_id=self.node_id,
            local=self.node_id == own_node_id,
            up=self.state in UP,
            idle=self.state == "idle" and self.since is None,
            loaded=frozenset(self.loaded),
            refused=frozenset(self.refused),
            types=tuple(status.types),
            degraded=status.degraded,
            rss_mb=status.rss_mb,
            placement_share=status.placement_share,
            stamp_age_s=now - self.heard,
            state=self.state if self.since is None or self.state != "idle" else "busy",
            engine=status.engine,
            problem=status.problem,
        )


class Roster:
    """`only`: NodeIDs, or names of lanes; empty: all. `lost` of what is returned is always the name of a lane
    whose request, if this module has one there, has come to nothing, and why."""

    def __init__(self, only: Collection[str] = ()) -> None:
        self._only = frozenset(only)
        self._lanes: dict[str, Known] = {}

    def __iter__(self) -> Iterator[Known]:
        return iter(self._lanes.values())

    def __len__(self) -> int:
        return len(self._lanes)

    def get(self, name: str) -> Known | None:
        """A lane by its name."""
        return self._lanes.get(name)

    def hear(self, status: LaneStatus, party: str, now: float) -> str | None:
        """A Status came. Why a request there has come to nothing; None: it has not."""
        name = f"{status.node_id}/{status.lane}"
        if self._only and not self._only & {name, status.node_id}:
            return None
        before = self._lanes.get(name)
        lost: str | None = None
        if before is not None and before.run != status.run:
            lost, before = "its host was started anew", None
        if before is not None and status.serial <= before.serial:
            return None
        if status.state == "closed":
            self._lanes.pop(name, None)
            return lost or "its host has ended"
        since = before.since if before is not None else None
        if since is not None and _knows_nothing(status, now - since):
            lost, since = "the lane knows nothing of the request: its answer was lost", None
        loaded, refused = _models(status)
        self._lanes[name] = Known(
            node_id=status.node_id,
            lane=status.lane,
            party=party,
            run=status.run,
            serial=status.serial,
            heard=now,
            state=status.state,
            status=status,
            loaded=loaded,
            refused=refused,
            since=since,
        )
        return lost

    def silent(self, now: float) -> list[str]:
        """Forgets the lanes that were silent for too long; their names."""
        gone = [each.name for each in self if now - each.heard > SILENT_S]
        for name in gone:
            del self._lanes[name]
        return gone

    def sent(self, name: str, now: float) -> None:
        """This module's request went there."""
        self._lanes[name].since = now

    def ended(self, name: str, state: str) -> None:
        """It is over, and `state` is what that tells of the lane."""
        known = self._lanes.get(name)
        if known is not None and known.since is not None:
            known.since, known.state = None, state

    def has(self, name: str, key: ModelKey, *, loaded: bool) -> None:
        """A request there told that the model is loaded, or that it is not."""
        if (known := self._lanes.get(name)) is not None:
            (known.loaded.add if loaded else known.loaded.discard)(key)

    def free(self, host: tuple[str, str], key: ModelKey) -> None:
        """A probe passed: the model is refused nowhere on that host."""
        for each in self:
            if each.host == host:
                each.refused.discard(key)

    def forget(self, name: str) -> None:
        """Nobody answers there."""
        self._lanes.pop(name, None)

    def unheard(self) -> None:
        """The link was lost: what lanes do is known again with their next Status."""
        for each in self:
            each.state = UNKNOWN


def _knows_nothing(status: LaneStatus, age_s: float) -> bool:
    """Whether a lane that should be at work for `age_s` says that it is not, or not for so long."""
    at_work = -LOST_S if status.busyms is None else status.busyms / 1000
    return age_s > LOST_S and at_work < age_s - LOST_S


def _models(status: LaneStatus) -> tuple[set[ModelKey], set[ModelKey]]:
    loaded, refused = set(), set()
    for each in status.models:
        if (key := _key(each)) is not None:
            if each.get("loaded"):
                loaded.add(key)
            if each.get("quarantined"):
                refused.add(key)
    return loaded, refused


def _key(told: Mapping[str, Any]) -> ModelKey | None:
    """The key that a lane names; None where it is none: another's lane host may be of another version."""
    digest, kind, config = told.get("digest"), told.get("format", "gguf"), told.get("config", {})
    if not isinstance(digest, str) or not isinstance(kind, str) or not isinstance(config, Mapping):
        return None
    pairs = sorted((str(name), str(value)) for name, value in config.items())
    return ModelKey(digest.removeprefix("sha256:").lower(), kind, tuple(pairs))
