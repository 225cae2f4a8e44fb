"""One lane host, from its parts. `run(bus, settings, stop)` takes everything from outside.

Start: cache, pool (the first worker is up), requests, Status, `$SRV`, and only then it is ready. Stop:
nothing new is taken and idle lanes are closed at once; what runs has `drain_s`; then the workers end, the
last answers go out, and `closed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from bakemesh.artifacts import Cache
from bakemesh.bus import Bus
from bakemesh.bus.discovery import announce, installed
from bakemesh.bus.errors import BusClosed
from bakemesh.bus.events import Closed, Event
from bakemesh.lanes.desk import Desk
from bakemesh.lanes.models import Models
from bakemesh.lanes.pulling import Puller
from bakemesh.lanes.settings import SERVICE, LanesSettings
from bakemesh.lanes.status import Host, Teller, new_run
from bakemesh.lanes.verbs import Verbs
from bakemesh.protocol.envelope import VERSION
from bakemesh.workerpool import Pool, Turns

_ANSWERS_S = 2.0  # for the last answers, once every worker is gone


async def run(
    bus: Bus, settings: LanesSettings, stop: asyncio.Event, *, ready: Callable[[], None] = lambda: None
) -> None:
    """Works until `stop` is set. Raises EngineCrashed (with its output) where no worker comes up,
    RuntimeDirRefused, BusError, OSError."""
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_event(event: Event) -> None:
        if isinstance(event, Closed) and not gone.done():
            gone.set_result(event.reason)

    off = bus.on_event(on_event)
    working = asyncio.create_task(_work(bus, settings, stop, gone, ready))
    stopping = asyncio.create_task(stop.wait())
    try:
        ends: set[asyncio.Future[Any]] = {working, stopping, gone}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await working
    except asyncio.CancelledError:
        working.cancel()
        await asyncio.wait({working})
        raise
    finally:
        off()
        stopping.cancel()
    if gone.done() and not stop.is_set():
        raise BusClosed(f"the server closed the connection for good: {gone.result()}")


async def _work(
    bus: Bus,
    settings: LanesSettings,
    stop: asyncio.Event,
    gone: asyncio.Future[str],
    ready: Callable[[], None],
) -> None:
    async with AsyncExitStack() as stack:
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        cache = await asyncio.to_thread(Cache, settings.cache)
        pool = Pool(settings.pool())
        if not await _started(pool, stop):
            return
        stack.push_async_callback(pool.close)
        turns = Turns(pool)
        puller = Puller(bus, cache)
        stack.push_async_callback(puller.close)
        keys = {lane.name: f"{settings.name}-{lane.name}" for lane in pool.lanes}
        host = Host(settings.node, settings.node_id, installed(), new_run())
        teller = Teller(bus, host, keys, pool, turns)
        pool.watch(teller.changed)
        stack.callback(teller.close)
        desk = Desk(
            bus, settings.node_id, keys, pool, turns, Verbs(pool, Models(pool, cache, puller)), teller
        )
        stack.push_async_callback(desk.close, _ANSWERS_S)
        await desk.open()
        announced = await announce(
            bus,
            SERVICE,
            version=host.version,
            description=f"{settings.workers} lanes of engine {settings.engine} on node {settings.node}",
            metadata={
                "node": settings.node,
                "nodeid": settings.node_id,
                "name": settings.name,
                "protocols": f"inference-v{VERSION}",
            },
            endpoints=desk.endpoints,
        )
        stack.push_async_callback(announced.stop)
        ready()
        stopping = asyncio.create_task(stop.wait())
        ends: set[asyncio.Future[Any]] = {stopping, gone}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        turns.close()
        teller.closing()
        await turns.idle(settings.drain_s if stop.is_set() else 0.0)
        await puller.close()
        await pool.close()


async def _started(pool: Pool, stop: asyncio.Event) -> bool:
    """Whether its workers are up; False: it was told to stop before. Raises what `Pool.start` does."""
    starting, stopping = asyncio.create_task(pool.start()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        starting.cancel()
        await asyncio.wait({starting})
        return False
    finally:
        stopping.cancel()
