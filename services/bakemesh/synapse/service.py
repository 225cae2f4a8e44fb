"""One synapse module, from its parts. `work` takes everything from outside.

Start: the library, lanes and core, the subscriptions, and then side by side the workers come up and the
models of the parameters are read into the cache; then it is ready. Requests are answered from the first
moment (`model_loading`, or they wait for a lane). Stop: what comes is refused, what runs has its time, then
everything ends, the last Status says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from bakemesh.artifacts import Cache
from bakemesh.bus import Bus
from bakemesh.bus.discovery import announce, installed
from bakemesh.bus.errors import BusClosed
from bakemesh.bus.events import Closed, Event
from bakemesh.protocol.envelope import VERSION
from bakemesh.synapse.answering.desk import Desk
from bakemesh.synapse.answering.ingest import Ingesting
from bakemesh.synapse.answering.parts import Parts
from bakemesh.synapse.answering.shelf import Shelf
from bakemesh.synapse.answering.streaming import Streams
from bakemesh.synapse.answering.texts import Texts
from bakemesh.synapse.answering.verbs import Verbs
from bakemesh.synapse.choosing import lanes_of
from bakemesh.synapse.lanes.base import Lanes
from bakemesh.synapse.measuring import Measures
from bakemesh.synapse.models.errors import ModelError
from bakemesh.synapse.models.library import Library
from bakemesh.synapse.parameters import GivenModel
from bakemesh.synapse.publishing import Publishing
from bakemesh.synapse.remembered import Remembered, mark
from bakemesh.synapse.scheduling.core import Core
from bakemesh.synapse.settings import SERVICE, SynapseSettings
from bakemesh.telemetry import TelemetrySettings, telemetry_of

log = logging.getLogger(__name__)

CLOSE_S = 1.0  # for workers to end by themselves


class ModelMissing(Exception):
    """Raised when a model of the parameters cannot be had: says which, and why."""


async def run(settings: SynapseSettings, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Connects and works until `stop`. Raises as `work`, and BusError where there is no bus."""
    async with await Bus.connect(settings.bus) as bus:
        await work(settings, bus, stop, ready)


async def work(settings: SynapseSettings, bus: Bus, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Works until `stop` is set. Raises ModelMissing, AliasesDamaged, TelemetryRefused, LaneFailed,
    WorkerPoolError, BusError, OSError where it cannot start or cannot go on.
    """
    async with AsyncExitStack() as stack:
        telemetry = telemetry_of(
            TelemetrySettings(
                kind=settings.parameters.telemetry,
                service=SERVICE,
                resource={
                    "service.version": installed(),
                    "bakemesh.mesh": bus.mesh,
                    "bakemesh.node": settings.node,
                    "bakemesh.nodeid": settings.node_id,
                },
            )
        )
        stack.push_async_callback(asyncio.to_thread, telemetry.close)
        cache, library = await asyncio.to_thread(_library, settings)
        measures = Measures(telemetry)
        lanes = lanes_of(settings, bus, telemetry)
        core = Core(lanes, settings.core(), told=measures.told if telemetry.on else None)
        stack.push_async_callback(lanes.close, CLOSE_S)
        stack.push_async_callback(core.close)
        desk, texts, shelf = Desk(bus, telemetry), Texts(), Shelf(library, core)
        stack.callback(texts.close)
        at = Parts(
            bus=bus,
            desk=desk,
            shelf=shelf,
            texts=texts,
            streams=Streams(bus),
            ingesting=Ingesting(shelf),
            cache=cache,
            core=core,
            lanes=lanes,
            default_s=settings.default_s,
        )
        publishing = Publishing(at, settings, installed())
        desk.changed = publishing.nudge
        lanes.watch(publishing.nudge)
        if telemetry.on:
            measures.look(publishing)
        verbs = Verbs(at, settings.node_id)
        stack.push_async_callback(verbs.close)
        given = settings.parameters.models
        shelf.coming.update(each.alias for each in given if shelf.get(each.alias) is None)
        await verbs.open()
        announced = await announce(
            bus,
            SERVICE,
            version=installed(),
            description=f"inference on node {settings.node}",
            metadata={
                "node": settings.node,
                "nodeid": settings.node_id,
                "protocols": f"inference-v{VERSION}",
            },
            endpoints=verbs.endpoints,
        )
        stack.push_async_callback(announced.stop)
        await _until(stop, _lived(at, settings, publishing, ready), bus)
        log.info("the module ends: %d requests are still to be answered", len(desk))
        desk.draining = True
        await publishing.publish()
        await desk.drain(settings.grace_s)
        await verbs.close()
        await desk.close()
        await publishing.publish()


async def _lived(
    at: Parts, settings: SynapseSettings, publishing: Publishing, ready: Callable[[], None]
) -> None:
    """The module's life: it does not end by itself."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(at.streams.run())
            group.create_task(publishing.run())
            starting = [group.create_task(_lane_up(at.lanes)), group.create_task(_models(at, settings))]
            await asyncio.gather(*starting)
            ready()
            publishing.nudge()
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from group_error


async def _lane_up(lanes: Lanes) -> None:
    """Returns when the first lane is up; those on the bus are waited for."""
    news = asyncio.Event()
    lanes.watch(news.set)
    await lanes.start()
    while not any(view.up for view in lanes.views()):
        news.clear()
        await news.wait()


async def _models(at: Parts, settings: SynapseSettings) -> None:
    """What the parameters say is in the cache, and every vocabulary in memory."""
    remembered = Remembered(settings.folder)
    for given in settings.parameters.models:
        await _take(at, settings, given, remembered)
    for known in at.shelf.all():
        try:
            await at.texts.warm(known)
        except (ModelError, OSError) as error:
            log.error("the vocabulary of %s cannot be read: %s", known.alias, error)


async def _take(at: Parts, settings: SynapseSettings, given: GivenModel, remembered: Remembered) -> None:
    weights = settings.parameters.weights
    now = await asyncio.to_thread(mark, given.path, weights, given.config)
    here = at.shelf.get(given.alias)
    if here is not None and remembered.same(given.alias, now):
        return
    if here is not None and now is None:
        log.warning("%s: not readable now; %s stays as it was read before", given.path, given.alias)
        return

    def tell(stage: str, done: int, total: int) -> None:
        log.info("%s: %s %d of %d bytes", given.alias, stage, done, total)

    try:
        await at.ingesting.take(given.path, given.alias, weights=weights, config=given.config, tell=tell)
    except (ModelError, OSError) as error:
        raise ModelMissing(f"model.{given.alias}: {error}") from error
    await asyncio.to_thread(remembered.put, given.alias, now)


async def _until(stop: asyncio.Event, life: Coroutine[Any, Any, None], bus: Bus) -> None:
    """Returns when `stop` is set. Raises what the life failed with, BusClosed where the bus is gone."""
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def heard(event: Event) -> None:
        if isinstance(event, Closed) and not gone.done():
            gone.set_result(event.reason)

    off = bus.on_event(heard)
    living, stopping = asyncio.ensure_future(life), asyncio.ensure_future(stop.wait())
    try:
        ends: set[asyncio.Future[Any]] = {living, stopping, gone}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if living.done():
            await living
        if gone.done():
            raise BusClosed(f"the server closed the connection for good: {gone.result()}")
    finally:
        off()
        for each in (living, stopping, gone):
            each.cancel()
        await asyncio.gather(living, stopping, return_exceptions=True)


def _library(settings: SynapseSettings) -> tuple[Cache, Library]:
    cache = Cache(settings.folder / "cache")
    return cache, Library(settings.folder, cache)


def _first(error: BaseException) -> BaseException:
    """What a part failed with, out of the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
