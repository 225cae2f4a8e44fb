"""How much one hotkey, and all together, may have at once. Pure: `now` is given, in seconds, monotonic.

Guarantees: memory is bounded by `most` hotkeys, however many come: one that has nothing running and was not
seen for longest is forgotten first. So whoever has more hotkeys than that has the rate of all of them, which
they have anyway. Left out: who the hotkeys are; only verified ones are to be counted here.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

BURST_S = 2.0


@dataclass(slots=True)
class _Client:
    tokens: float
    at: float
    running: int = 0


@dataclass(frozen=True, slots=True)
class Busy:
    """Why a request may not run now, and when another may."""

    reason: str
    retry_after_s: float


class Clients:
    """`rate` requests a second a hotkey (0: no limit), `at_once` at once."""

    def __init__(self, rate: float, at_once: int, most: int) -> None:
        self._rate, self._at_once, self._most = rate, at_once, most
        self._burst = max(1.0, rate * BURST_S)
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clients)

    def enter(self, hotkey: str, now: float) -> Busy | None:
        """Counts one that begins; or says why it may not. Who entered leaves."""
        client = self._clients.get(hotkey)
        if client is None:
            self._make_room()
            client = self._clients[hotkey] = _Client(self._burst, now)
        else:
            self._clients.move_to_end(hotkey)
        if client.running >= self._at_once:
            return Busy(f"this hotkey has {client.running} requests running, the most it may have", 1.0)
        if self._rate:
            client.tokens = min(self._burst, client.tokens + max(0.0, now - client.at) * self._rate)
            client.at = now
            if client.tokens < 1.0:
                wait = (1.0 - client.tokens) / self._rate
                return Busy(f"this hotkey has more than {self._rate:g} requests a second", wait)
            client.tokens -= 1.0
        client.running += 1
        return None

    def leave(self, hotkey: str) -> None:
        """One that entered is over."""
        client = self._clients.get(hotkey)
        if client is not None:
            client.running -= 1

    def _make_room(self) -> None:
        looked = 0
        while len(self._clients) >= self._most and looked < len(self._clients):
            hotkey, client = next(iter(self._clients.items()))
            if client.running:  # it stays, at the end; there are no more of these than requests at once
                self._clients.move_to_end(hotkey)
                looked += 1
            else:
                del self._clients[hotkey]


class Gate:
    """Requests of all clients at once."""

    __slots__ = ("most", "running")

    def __init__(self, most: int) -> None:
        self.most, self.running = most, 0

    @property
    def full(self) -> bool:
        """Whether another one may not begin."""
        return self.running >= self.most
