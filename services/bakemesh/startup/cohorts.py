"""A PsySpec's cohorts, written to the mesh's bucket: name → JSON list of NodeIDs.

Names of nodes are resolved as far as nodes are known; a member that is not known yet stands there by its
name, and by its id once it was heard. A cohort that left the PsySpec is removed, those of others are let be.
"""

from __future__ import annotations

import asyncio
import json
import logging

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusClosed, BusError
from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage
from bakemesh.protocol.psyspec import PsySpec
from bakemesh.startup import core
from bakemesh.startup.desk import Desk
from bakemesh.startup.state import State

log = logging.getLogger(__name__)
LOOK_S, AGAIN_S = 1.0, 5.0
WRITTEN = "cohorts"  # the journal's word for those that are ours


def members(psyspec: PsySpec, state: State) -> dict[str, list[str]]:
    """What the bucket is to hold, by cohort."""
    ids = {seen.node: node_id for node_id, seen in state.seen.items()}
    ids |= {goal.node: node_id for node_id, goal in core.homes(state).items()}
    ids |= {node.name: node.node_id for node in psyspec.nodes if node.node_id is not None}
    return {cohort.name: [ids.get(node, node) for node in cohort.nodes] for cohort in psyspec.cohorts}


class Cohorts:
    """Keeps them written."""

    def __init__(self, bus: Bus, desk: Desk) -> None:
        self.desk = desk
        self._bucket = Bucket(bus, storage.cohorts_bucket(bus.mesh))
        self._held: dict[str, list[str]] = {}

    async def run(self) -> None:
        """For ever."""
        ours = set(json.loads(self.desk.journal.state().get(WRITTEN, "[]")))
        while True:
            state, plan = self.desk.state, self.desk.plan
            if not state.up or plan is None:
                await asyncio.sleep(LOOK_S)
                continue
            wanted = members(plan.psyspec, state)
            try:
                if wanted.keys() - ours:
                    ours |= wanted.keys()
                    await asyncio.to_thread(self.desk.journal.note, WRITTEN, json.dumps(sorted(ours)))
                for name in ours - wanted.keys():
                    await self._bucket.delete(name)
                    self._held.pop(name, None)
                for name, nodes in wanted.items():
                    if self._held.get(name) != nodes:
                        await self._bucket.put(name, json.dumps(nodes).encode())
                        self._held[name] = nodes
                if ours - wanted.keys():
                    ours = set(wanted)
                    await asyncio.to_thread(self.desk.journal.note, WRITTEN, json.dumps(sorted(ours)))
            except BusClosed:
                raise
            except BusError as error:
                log.info("cohorts are not written yet: %s", error)
                await asyncio.sleep(AGAIN_S)
                continue
            await asyncio.sleep(LOOK_S)
