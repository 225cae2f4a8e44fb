"""Health probes: a command that must exit with 0, or a request on a subject of the component's own that must
be answered, by whatever.

Guarantees: a probe is over after its timeout, nothing of a command's process tree is left; while the bus is
away a request says nothing about the component. Left out: what follows from a probe (see `core`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from bakemesh.builder.components.launch import DATA, Place, environment_of
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusClosed, BusError, NoResponder, NotConnected, RequestTimeout
from bakemesh.processes import Keeper, KeeperLost, ProcessSpec, SpawnRefused
from bakemesh.protocol.builder.spec.component import ComponentSpec, Health
from bakemesh.protocol.message import GenericMessage
from bakemesh.protocol.rights import builder_name
from bakemesh.protocol.subjects import build

SOONEST_S = 0.1  # while it is waited for, probes begin so close and grow apart up to the interval
GOOD = ""


class Prober:
    """Probes one instance until cancelled. `heard` gets GOOD, or why a probe was missed."""

    def __init__(
        self,
        spec: ComponentSpec,
        instance: str,
        place: Place,
        keeper: Keeper,
        bus: Bus,
        heard: Callable[[str], None],
        starting: Callable[[], bool],
    ) -> None:
        assert spec.health is not None
        self.health: Health = spec.health
        self.spec, self.instance, self.place = spec, instance, place
        self._keeper, self._bus = keeper, bus
        self._heard, self._starting = heard, starting

    async def run(self) -> None:
        """For ever."""
        interval_s = self.health.interval_ms / 1000
        pause = min(SOONEST_S, interval_s)
        while True:
            found = await self.once()
            if found is not None:
                self._heard(found)
            if self._starting():
                await asyncio.sleep(pause)
                pause = min(pause * 2, interval_s)
            else:
                await asyncio.sleep(interval_s)

    async def once(self) -> str | None:
        """GOOD, why it was missed, or None: nothing is known of the component."""
        if self.health.argv:
            return await self._command(self.place.of(self.spec.name) / DATA)
        return await self._request()

    async def _command(self, folder: Path) -> str | None:
        # The probe is no process of the component: what is swept for its instance must not find it.
        environment = environment_of(self.spec, self.place, self.instance)
        del environment["BAKEMESH_INSTANCE"]
        try:
            minded = await self._keeper.spawn(ProcessSpec(self.health.argv, environment, folder))
        except KeeperLost:
            return None
        except SpawnRefused as error:
            return f"{error}"
        try:
            async with asyncio.timeout(self.health.timeout_ms / 1000):
                found = await minded.exited()
        except TimeoutError:
            return f"no end within {self.health.timeout_ms} ms"
        finally:
            await asyncio.shield(asyncio.ensure_future(minded.kill(0.0)))
        if found.lost:
            return None
        if found.signal is not None:
            return f"killed by signal {found.signal}"
        return GOOD if found.code == 0 else f"exit code {found.code}"

    async def _request(self) -> str | None:
        assert self.health.subject is not None
        node_id, type_ = self.place.node_id, self.health.subject
        subject = build(self.place.mesh, node_id, builder_name(node_id), self.spec.name, type_)
        if not self._bus.connected:
            return None
        payload = self._bus.seal(GenericMessage(), type=type_).payload
        try:
            await self._bus.link.ask(subject, payload, self.health.timeout_ms / 1000)
        except (NotConnected, BusClosed):
            return None
        except NoResponder:
            return f"nobody answers {type_}"
        except RequestTimeout:
            return f"no answer to {type_} within {self.health.timeout_ms} ms" if self._bus.connected else None
        except BusError as error:
            return str(error)
        return GOOD
