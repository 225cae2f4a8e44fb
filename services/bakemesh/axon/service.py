"""One gateway, from its parts. `run(settings, stop, ready, bus)` takes everything from outside.

Start: hotkey, the user's files, what was seen before, the mesh (where there is a bus), the socket, `$SRV`,
and only then it is ready. Stop: it is announced no more, nothing new is accepted, what runs has `drain_s`;
then the mesh, and what was seen is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.routing import BaseRoute

from bakemesh.apikeys import KnownKeys
from bakemesh.axon import app
from bakemesh.axon.apikeys import ApiKeys
from bakemesh.axon.builtin import attach_builtin
from bakemesh.axon.gateway import GatewayState
from bakemesh.axon.mesh import PATIENCE_S, Mesh
from bakemesh.axon.openai import openai_routes
from bakemesh.axon.openapi import openapi_route
from bakemesh.axon.parameters import Parameters
from bakemesh.axon.serving import serving
from bakemesh.axon.settings import SERVICE, GatewaySettings
from bakemesh.bus import Bus
from bakemesh.bus.discovery import announce, installed
from bakemesh.bus.errors import BusClosed
from bakemesh.bus.events import Closed, Event
from bakemesh.edge import Axon, load
from bakemesh.hotkeys import load_hotkey, wallet_hotkey
from bakemesh.inference import Inference
from bakemesh.protocol.axon.signatures import Hotkey

log = logging.getLogger(__name__)


class NothingToServe(ValueError):
    """Raised when a gateway has neither a bus nor synapses of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AxonSettings:
    """`folder`: the gateway's own, on a disk of the node. `api_keys`: where they are, if the parameters do
    not say. `drain_s`: for what runs, after a TERM.
    """

    node: str
    node_id: str
    name: str
    folder: Path
    api_keys: Path
    parameters: Parameters
    drain_s: float = 10.0

    def gateway(self) -> GatewaySettings:
        """Those of the HTTP side."""
        given = self.parameters
        return GatewaySettings(
            host=given.host,
            port=given.port,
            folder=self.folder / "seen",
            tls=given.tls,
            deny=given.deny,
            window=given.window,
            limits=given.limits,
            drain_s=self.drain_s,
        )


@dataclass(frozen=True, slots=True)
class Serves:
    """What a gateway that is ready serves, and where."""

    url: str
    hotkey: str
    routes: tuple[str, ...]


Ready = Callable[[Serves], None]


async def run(
    settings: AxonSettings, stop: asyncio.Event, ready: Ready = lambda _: None, bus: Bus | None = None
) -> None:
    """Works until `stop` is set. Raises HotkeyRefused, FileRefused, AttachRefused, DenyListRefused,
    NothingToServe, CannotServe, BusError, OSError.
    """
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_event(event: Event) -> None:
        if isinstance(event, Closed) and not gone.done():
            gone.set_result(event.reason)

    given = settings.parameters
    hotkey = own_hotkey(given)
    axon = Axon()
    for path in given.routes:
        load(path, axon)
    if bus is None and not given.routes:
        raise NothingToServe("nothing to serve: give a Python file with synapses, or --nats for a mesh")
    async with AsyncExitStack() as stack:
        if bus is not None:
            stack.callback(bus.on_event(on_event))
        state = GatewayState(settings.gateway(), hotkey)
        stack.callback(state.close)
        state.open()
        extra: list[BaseRoute] = []
        if bus is not None:
            inference = await stack.enter_async_context(Inference(bus, patience_s=PATIENCE_S))
            mesh = Mesh(inference, given.models)
            attach_builtin(axon, mesh)
            keys = KnownKeys(given.api_keys or settings.api_keys)
            extra += openai_routes(mesh, ApiKeys(keys, given.open), state)
            state.missing["mesh"] = mesh.problem
        extra.append(openapi_route(axon, openai=bus is not None))
        application = app.build(axon, state, extra)
        host, port = await stack.enter_async_context(serving(application, state))
        told = _told(settings, axon, hotkey, host, port)
        if bus is not None:
            stack.push_async_callback((await _announced(bus, settings, told)).stop)
        log.info("serves %s as %s on %s", ", ".join(told.routes), told.hotkey, told.url)
        ready(told)
        stopping = asyncio.create_task(stop.wait())
        ends: set[asyncio.Future[Any]] = {stopping, gone}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
    if gone.done() and not stop.is_set():
        raise BusClosed(f"the server closed the connection for good: {gone.result()}")


def own_hotkey(given: Parameters) -> Hotkey:
    """The gateway's. Raises HotkeyRefused."""
    if isinstance(given.hotkey, Path):
        return load_hotkey(given.hotkey)
    return load_hotkey(wallet_hotkey(given.hotkey.name, given.hotkey.hotkey, given.hotkey.base))


def _told(settings: AxonSettings, axon: Axon, hotkey: Hotkey, host: str, port: int) -> Serves:
    scheme = "https" if settings.parameters.tls is not None else "http"
    shown = f"[{host}]" if ":" in host else host
    return Serves(f"{scheme}://{shown}:{port}", hotkey.address, tuple(axon.routes))


async def _announced(bus: Bus, settings: AxonSettings, told: Serves) -> Any:
    return await announce(
        bus,
        SERVICE,
        version=installed(),
        description=f"the signed HTTP edge on node {settings.node}: {', '.join(told.routes)}"[:500],
        metadata={
            "node": settings.node,
            "nodeid": settings.node_id,
            "name": settings.name,
            "url": told.url,
            "hotkey": told.hotkey,
            "protocols": "axon-v1",
        },
    )
