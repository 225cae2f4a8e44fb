"""Which lanes a module has: workers of its own, those that are on the bus, or both."""

from __future__ import annotations

from bakemesh.bus import Bus
from bakemesh.synapse.lanes.base import Lanes
from bakemesh.synapse.lanes.bus import BusLanes
from bakemesh.synapse.lanes.local import LocalLanes
from bakemesh.synapse.lanes.several import SeveralLanes
from bakemesh.synapse.settings import SynapseSettings


def lanes_of(settings: SynapseSettings, bus: Bus) -> Lanes:
    """Those that the parameters say; not started."""
    match settings.parameters.lanes:
        case "bus":
            return BusLanes(bus)
        case "both":
            return SeveralLanes(LocalLanes(settings.pool(), settings.node_id), BusLanes(bus))
        case _:
            return LocalLanes(settings.pool(), settings.node_id)
