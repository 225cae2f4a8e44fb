"""The life of a client: how it is connected, opened and closed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from bakemesh.bus import Bus, BusSettings, Credentials, Tls
from bakemesh.inference.carrying import Carrier
from bakemesh.inference.errors import Closed
from bakemesh.inference.nodes import Node
from bakemesh.inference.results import Usage
from bakemesh.protocol import names
from bakemesh.telemetry import OFF, Telemetry

DEADLINE_S = 60.0


class Client:
    """A client on one bus; an async context manager. What it can do is in `session.Inference`.

    `bus`: one that exists, which is left open at the end, or the settings of a connection of one's own
    (`connect` makes them). `deadline_s`: of calls that give none. `retry`: whether a request that a node
    declined (its queue is full, it does not have the model) is tried on another one, or again later, while
    its time lasts; without, the first refusal is raised. `telemetry`: gets a span of each request, which the
    node's own are below.
    """

    def __init__(
        self,
        bus: Bus | BusSettings,
        *,
        deadline_s: float = DEADLINE_S,
        retry: bool = True,
        patience_s: float | None = None,
        telemetry: Telemetry = OFF,
    ) -> None:
        self._telemetry = telemetry
        self.usage = Usage()  # of all calls
        self._settings = bus if isinstance(bus, BusSettings) else None
        self._bus = None if isinstance(bus, BusSettings) else bus
        self._deadline_s, self._retry, self._patience_s = seconds(deadline_s), retry, patience_s
        self._carrier: Carrier | None = None
        self._opened = self._closed = False

    @classmethod
    def connect(
        cls,
        nats: str | Sequence[str] = "nats://127.0.0.1:4222",
        name: str = "inference",
        *,
        mesh: str = "psyclone",
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        connect_timeout_s: float = 5.0,
        deadline_s: float = DEADLINE_S,
        retry: bool = True,
        patience_s: float | None = None,
        telemetry: Telemetry = OFF,
    ) -> Self:
        """A client with a connection of its own, made on entering `async with` (or by `open`).

        `name`: the identity that the server knows. Entering raises BusUnreachable, AccessDenied,
        BadCredentials.
        """
        settings = BusSettings(
            servers=tuple(part.strip() for part in nats.split(",")) if isinstance(nats, str) else tuple(nats),
            mesh=mesh,
            name=names.check("Supervisor", name),
            credentials=credentials,
            tls=tls,
            connect_timeout_s=connect_timeout_s,
        )
        return cls(settings, deadline_s=deadline_s, retry=retry, patience_s=patience_s, telemetry=telemetry)

    async def open(self) -> Self:
        """Connects and listens to the nodes' Status. Raises the bus's errors; nothing is left open then."""
        if self._opened:
            raise Closed("this client was opened before; make another one")
        self._opened = True
        if self._settings is not None:
            self._bus = await Bus.connect(self._settings)
        try:
            self._carrier = Carrier(
                self.bus, retry=self._retry, patience_s=self._patience_s, telemetry=self._telemetry
            )
            await self._carrier.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Ends calls that run with Closed, and closes a connection of its own. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._carrier is not None:
            await self._carrier.close("the client was closed")
        if self._settings is not None and self._bus is not None:
            await self._bus.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def bus(self) -> Bus:
        """The connection. Raises Closed before `open`."""
        if self._bus is None:
            raise Closed("not open yet: use `async with Inference.connect(...) as inference`")
        return self._bus

    @property
    def nodes(self) -> list[Node]:
        """The nodes with a synapse module that are heard of, as their last Status told."""
        return self._running.nodes.all()

    @property
    def _running(self) -> Carrier:
        if self._closed or self._carrier is None:
            raise Closed("the client was closed" if self._closed else "not open yet: use `async with`")
        return self._carrier

    def _deadline(self, given: float | None) -> float:
        """By the loop's clock."""
        return self._running.now + (self._deadline_s if given is None else seconds(given))


def seconds(given: float) -> float:
    """A time that a call may take. Raises ValueError for none."""
    if not (given > 0 and math.isfinite(given)):
        raise ValueError(f"deadline_s: {given!r}; expected seconds above 0")
    return float(given)
