"""The module's Status: on change at most four times a second, and every two seconds.

`rest_s` decides; `Publishing` looks, and publishes what it sees. Left out: what the numbers are made of.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any, Final

from bakemesh.bus.errors import BusClosed, BusError
from bakemesh.protocol.inference.answers import SynapseStatus
from bakemesh.protocol.subjects import NO_KEY, SYNAPSE_STATUS, build
from bakemesh.synapse import standing
from bakemesh.synapse.answering.parts import Parts
from bakemesh.synapse.lanes.base import LaneView
from bakemesh.synapse.settings import SynapseSettings

log = logging.getLogger(__name__)

EVERY_S: Final = 2.0
APART_S: Final = 0.25


def rest_s(now: float, last: float, *, news: bool) -> float:
    """How long to wait before the next look."""
    return max(0.0, last + (APART_S if news else EVERY_S) - now)


class Publishing:
    """`nudge` tells that something may be new; `last`, `views`: what was published last, of what lanes."""

    def __init__(self, at: Parts, settings: SynapseSettings, version: str) -> None:
        self._at, self._settings, self._version = at, settings, version
        self._subject = build(at.bus.mesh, settings.node_id, settings.name, NO_KEY, SYNAPSE_STATUS)
        self._run = secrets.token_hex(8)
        self._serial = 0
        self._news = asyncio.Event()
        self._told: dict[str, Any] = {}
        self.last: SynapseStatus | None = None
        self.views: tuple[LaneView, ...] = ()

    def nudge(self) -> None:
        """Something may have changed."""
        self._news.set()

    async def run(self) -> None:
        """Publishes, for ever. Raises BusClosed."""
        clock = asyncio.get_running_loop().time
        last = float("-inf")
        while True:
            await asyncio.sleep(rest_s(clock(), last, news=True))
            try:
                async with asyncio.timeout(rest_s(clock(), last, news=False)):
                    await self._news.wait()
                forced = False
            except TimeoutError:
                forced = True
            self._news.clear()
            if await self.publish(forced=forced) or forced:
                last = clock()

    async def publish(self, *, forced: bool = True) -> bool:
        """Publishes, where something changed or `forced`; whether it did. Raises BusClosed."""
        said = self._look()
        if not forced and said == self._told:
            return False
        self._serial += 1
        status = SynapseStatus(serial=self._serial, **said)
        try:
            await self._at.bus.publish(self._subject, status)
        except BusClosed:
            raise
        except BusError as error:
            log.debug("status not published: %s", error)
            return False
        self._told, self.last, self.views = said, status, tuple(self._at.lanes.views())
        return True

    def _look(self) -> dict[str, Any]:
        at = self._at
        views, known, core = at.lanes.views(), at.shelf.all(), at.core.status()
        refused = any(standing.quarantined(each.key, views) for each in known)
        state, _ = standing.state_of(views, draining=at.desk.draining, refused=refused)
        return {
            "node": self._settings.node,
            "node_id": self._settings.node_id,
            "run": self._run,
            "state": state,
            "waitms": core.waitms,
            "rate": round(core.rate, 1),
            "backlog": core.backlog,
            "queued": core.queued,
            "bytesinflight": at.desk.bytes_inflight,
            "lanes": core.lanes,
            "busy": core.busy,
            "models": [each.alias for each in known],
            "loaded": [each.alias for each in known if each.key in core.loaded],
            "version": self._version,
        }
