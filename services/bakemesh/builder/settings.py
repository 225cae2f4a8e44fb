"""The Builder's settings, as one value: resolved by `bakemesh.settings`, checked, with the node's name
settled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bakemesh.bus.settings import BusSettings

_CHOSEN = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL")


def environment_of(environ: Mapping[str, str]) -> dict[str, str]:
    """What a step's process starts from: a chosen list, never the Builder's own environment as a whole."""
    chosen = {name: environ[name] for name in _CHOSEN if name in environ}
    chosen.setdefault("PATH", os.defpath)
    chosen.setdefault("LANG", "C.UTF-8")
    return chosen


@dataclass(frozen=True, kw_only=True, slots=True)
class BuilderSettings:
    """Durations in seconds, sizes in bytes. `accept_forwarded` None: yes where the server asks for no
    authentication. `stop_components`: at TERM; else they run on. `keys`: the folder of their key files.
    """

    bus: BusSettings
    node: str
    node_id: str
    state: Path
    operators: frozenset[str] = frozenset()
    accept_forwarded: bool | None = None
    max_bakes: int = 64
    store_max_bytes: int | None = None
    nodes_expected: int = 1
    durability: str = "process"
    kill_grace_s: float = 2.0
    unreachable_s: float = 300.0
    control_rate: float = 200.0
    recipe_rate: float = 50.0
    outbox_max_bytes: int = 64 * 2**20
    stop_components: bool = False
    keys: Path | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: environment_of(os.environ))
