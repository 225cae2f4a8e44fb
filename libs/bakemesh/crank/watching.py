"""Live values of a component, for whoever looks on: one message a key in `EVERY_S`, the latest value wins.

At most once: a value that the bus did not take is sent again when it is back, unless a newer one came.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusClosed, BusError, NotConnected
from bakemesh.crank.errors import CrankError
from bakemesh.protocol import subjects
from bakemesh.protocol.builder.messages import clip
from bakemesh.protocol.builder.node import WATCH_BYTES, ComponentWatch

log = logging.getLogger(__name__)

EVERY_S: Final = 0.25
KEYS: Final = 64
KEY_LENGTH: Final = 64
_AWAY_S: Final = 1.0


class WatchRefused(CrankError):
    """Raised when a live value has no usable key: says which, and what would be right."""


class Watches:
    """One component's. `set` may be called in the loop alone."""

    def __init__(self, bus: Bus, component: str, instance: str) -> None:
        self._bus, self._component, self._instance = bus, component, instance
        self._subject = subjects.build(
            bus.mesh, bus.settings.node_id, component, subjects.NO_KEY, subjects.COMPONENT_WATCH
        )
        self._latest: dict[str, str] = {}
        self._waiting: set[str] = set()
        self._sent = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def set(self, key: str, value: object) -> None:
        """The value of `key` from now on. Raises WatchRefused."""
        self._show(key, check(key, value, self._latest))

    def count(self, key: str, number: int) -> None:
        """A live value of the host's own: it has no bound of keys."""
        self._show(key, str(number))

    async def close(self) -> None:
        """Sends what waits, as far as the bus is there."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            await self._sending
        await self._send(last=True)

    def _show(self, key: str, text: str) -> None:
        if self._latest.get(key) == text:
            return
        self._latest[key] = text
        self._waiting.add(key)
        self._plan(max(0.0, self._sent + EVERY_S - self._loop.time()))

    def _plan(self, pause: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(pause, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send())
        else:
            self._plan(EVERY_S)

    async def _send(self, *, last: bool = False) -> None:
        waiting, self._waiting = self._waiting, set()
        self._sent = self._loop.time()
        for key in sorted(waiting):
            value = ComponentWatch(
                component=self._component, key=key, value=self._latest[key], instance=self._instance
            )
            try:
                await self._bus.publish(self._subject, value)
            except NotConnected:
                self._waiting.add(key)
            except BusClosed:
                return
            except BusError as error:
                log.warning("watch %s: %s", key, error)
        if self._waiting and not last:
            self._plan(_AWAY_S)


def check(key: object, value: object, known: dict[str, str]) -> str:
    """The value as text, cut to WATCH_BYTES. Pure. Raises WatchRefused."""
    if not isinstance(key, str) or not key or len(key) > KEY_LENGTH:
        raise WatchRefused(f"watch: key {str(key)[:80]!r} must be text of 1 to {KEY_LENGTH} characters")
    if key not in known and len(known) >= KEYS:
        raise WatchRefused(f"watch: {key!r} would be the {KEYS + 1}th key of this component; at most {KEYS}")
    return clip(str(value), WATCH_BYTES)
