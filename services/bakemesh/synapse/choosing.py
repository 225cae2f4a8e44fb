"""Which lanes a module has: workers of its own, those that are on the bus, or both."""

from __future__ import annotations

from bakemesh.bus import Bus
from bakemesh.synapse.lanes.base import Lanes
from bakemesh.synapse.lanes.bus import BusLanes
from bakemesh.synapse.lanes.local import LocalLanes
from bakemesh.synapse.lanes.several import SeveralLanes
from bakemesh.synapse.lanes.traced import TracedLanes
from bakemesh.synapse.settings import SynapseSettings
from bakemesh.telemetry import Telemetry


def lanes_of(settings: SynapseSettings, bus: Bus, telemetry: Telemetry) -> Lanes:
    """Those that the parameters say, traced where telemetry is on; not started."""
    kinds: list[Lanes] = []
    if settings.parameters.own_lanes:
        kinds.append(LocalLanes(settings.pool(), settings.node_id))
    if settings.parameters.bus_lanes:
        kinds.append(BusLanes(bus))
    lanes = kinds[0] if len(kinds) == 1 else SeveralLanes(*kinds)
    return TracedLanes(lanes, telemetry) if telemetry.on else lanes
