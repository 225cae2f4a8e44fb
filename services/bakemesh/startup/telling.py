"""What a Startup Supervisor says on stdout: one line an event, a word and a JSON object.

    ready {…}          it works           component {…}   a component of the PsySpec changed its state
    announced {…}      Psyclone.Ready     failed {…}      a bring-up failed; tried again after pause_s
    reconciled {…}     what a changed PsySpec did on a node
    missing {…}        a node of the PsySpec is not there; its group waits
    held {…}           a bring-up waits until components that move are gone from the nodes `on`
    unheard {…}        it waits no longer, for those nodes are away
    given {…}          the PsySpec that counts from now on

`bakemesh up` draws them. A reader that goes away is no reason to end.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bakemesh.startup.state import (
    Announce,
    BroughtUp,
    Effect,
    Failed,
    Held,
    Missing,
    Reconcile,
    Spec,
    Unheard,
)

log = logging.getLogger(__name__)


def to_stdout(word: str, facts: Mapping[str, Any]) -> None:
    """One line."""
    try:
        print(word, json.dumps(facts, ensure_ascii=False), flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads it any more


@dataclass(frozen=True, slots=True)
class _Shown:
    state: str
    digest: str


class Teller:
    """Says what happens, each change of a component once."""

    def __init__(self, node: str, node_id: str, line: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._node, self._node_id, self._line = node, node_id, line
        self._shown: dict[tuple[str, str], _Shown] = {}

    def given(self, spec: Spec) -> None:
        """A PsySpec counts."""
        self._line("given", {"psyspec": spec.name, "digest": spec.digest})

    def effect(self, effect: Effect) -> None:
        """One decision of the core, in words."""
        match effect:
            case BroughtUp(node_id, node, components):
                for name in components:
                    self._component(node_id, node, {"name": name, "state": "ready"})
                log.info("node %s: %d components are up", node, len(components))
            case Announce(boot, psyspec, digest, components):
                facts = {"node": self._node, "nodeid": self._node_id, "boot": boot, "psyspec": psyspec}
                self._line("announced", {**facts, "digest": digest, "components": list(components)})
            case Reconcile():
                facts = {"node": effect.node, "nodeid": effect.node_id, "digest": effect.digest}
                changed = {
                    "added": list(effect.added),
                    "removed": list(effect.removed),
                    "restarted": list(effect.restarted),
                }
                self._line("reconciled", {**facts, **changed, "unchanged": effect.unchanged})
                for name in effect.removed:
                    self._shown.pop((effect.node_id, name), None)
            case Failed(node_id, node, why, pause_s):
                facts = {"node": node, "nodeid": node_id, "why": why}
                self._line("failed", {**facts, "pause_s": round(pause_s, 3)})
                log.warning("bring-up of node %s failed: %s; again in %.1f s", node, why, pause_s)
            case Missing(node, components):
                self._line("missing", {"node": node, "components": components})
            case Held(node_id, node, components, others):
                self._line("held", _moving(node_id, node, components, others))
            case Unheard(node_id, node, components, others):
                self._line("unheard", _moving(node_id, node, components, others))
                log.warning(
                    "%s on node %s: %s not heard of, so it may run there as well until that node is heard",
                    ", ".join(components), node, ", ".join(others),
                )  # fmt: skip

    def components(self, node_id: str, node: str, found: list[dict[str, Any]]) -> None:
        """The components of a node that are the PsySpec's, as its SystemStatus has them."""
        for each in found:
            self._component(node_id, node, each)

    def _component(self, node_id: str, node: str, found: Mapping[str, Any]) -> None:
        key, state = (node_id, str(found.get("name"))), str(found.get("state"))
        digest = str(found.get("digest") or "")
        shown = self._shown.get(key)
        if shown is not None and shown.state == state and digest in ("", shown.digest):
            return
        self._shown[key] = _Shown(state, digest or (shown.digest if shown else ""))
        if shown is not None and shown.state == state and not shown.digest:
            return  # said by the bring-up before the node's own status had it
        facts = {"node": node, "nodeid": node_id, "name": key[1], "state": state}
        more = {word: found[word] for word in ("reason", "restarts", "pid") if found.get(word)}
        self._line("component", {**facts, **more})


def _moving(
    node_id: str, node: str, components: tuple[str, ...], others: tuple[str, ...]
) -> dict[str, object]:
    return {"node": node, "nodeid": node_id, "components": list(components), "on": list(others)}
