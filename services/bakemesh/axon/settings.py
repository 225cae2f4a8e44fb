"""A gateway's settings, as one value. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bakemesh.protocol.axon.freshness import Window

SERVICE: Final = "axon"
HOST: Final = "127.0.0.1"
PORT: Final = 8091
MIB: Final = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What clients may take of a gateway.

    `header_bytes`: request line and headers. `in_flight`: requests at once of all clients; `unverified`: of
    these, whose body is awaited though they are not verified yet (`btauth/1`); `hotkey_requests` of one
    hotkey, `hotkey_rate` a second (0: no limit) with a burst of two seconds. `request_s`: the most that a
    request may take, where its route says no other. `header_s`, `body_s`: for receiving them.
    `threads`: of handlers that are plain functions. `hotkeys`: how many are remembered. `nonces`: that are
    remembered, of all hotkeys.
    """

    header_bytes: int = 16 << 10
    headers: int = 128
    body_bytes: int = 16 * MIB
    connections: int = 4096
    in_flight: int = 512
    unverified: int = 64
    hotkey_requests: int = 64
    hotkey_rate: float = 200.0
    request_s: float = 120.0
    header_s: float = 10.0
    body_s: float = 30.0
    keep_alive_s: float = 75.0
    threads: int = 32
    hotkeys: int = 65_536
    nonces: int = 500_000

    def nonces_of_one(self, window: Window) -> int:
        """How many nonces of one hotkey are remembered at once: what its rate lets through in the window."""
        if not self.hotkey_rate:
            return self.nonces
        seconds = (window.back_ms + window.ahead_ms) / 1000
        return min(self.nonces, int(self.hotkey_rate * (seconds + 2)) + 64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """PEM files of the server."""

    cert: Path
    key: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewaySettings:
    """`folder`: the gateway's own, for what it has seen; None: it is forgotten at its end. `deny`: a file of
    addresses and hotkeys (`deny_list`). `drain_s`: for what runs, after a TERM.
    """

    host: str = HOST
    port: int = PORT
    folder: Path | None = None
    tls: Tls | None = None
    deny: Path | None = None
    window: Window = field(default_factory=Window)
    limits: Limits = field(default_factory=Limits)
    drain_s: float = 10.0
