"""One Startup Supervisor, from its parts. `run(settings, stop)` takes everything from outside.

Start: lock, journal, what the arguments say, bus, Supervisor, the service that takes PsySpecs, and only then
the nodes are watched, whose first SystemStatus of the own node starts everything. Stop: at any time; what is
under way goes on at the Builders and is followed again after the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from bakemesh.bus import Bus
from bakemesh.bus.discovery import announce, installed
from bakemesh.protocol.envelope import VERSION
from bakemesh.protocol.subjects import STARTUP_SPEC, pattern
from bakemesh.startup.answering import Answering
from bakemesh.startup.cohorts import Cohorts
from bakemesh.startup.desk import Desk
from bakemesh.startup.errands import Errands
from bakemesh.startup.folder import JOURNAL, only_one
from bakemesh.startup.journal import Journal
from bakemesh.startup.owners import Owners
from bakemesh.startup.plan import read_plan
from bakemesh.startup.settings import StartupSettings
from bakemesh.startup.telling import Teller
from bakemesh.startup.watching import Watching
from bakemesh.supervisor import Supervisor

log = logging.getLogger(__name__)
Line = Callable[[str, Mapping[str, Any]], None]


async def run(
    settings: StartupSettings,
    stop: asyncio.Event,
    *,
    ready: Callable[[], None] = lambda: None,
    line: Line = lambda _word, _facts: None,
) -> None:
    """Works until `stop` is set. Raises StartupTaken, JournalRefused, PsySpecRefused, BusError, OSError where
    it cannot start or cannot go on.
    """
    working = asyncio.create_task(_work(settings, ready, line))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.wait({working, stopping})
    if not working.cancelled() and (error := working.exception()) is not None:
        raise _first(error)


def _first(error: BaseException) -> BaseException:
    """What a part failed with, out of the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _work(settings: StartupSettings, ready: Callable[[], None], line: Line) -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(only_one(settings.folder))
        journal = stack.enter_context(contextlib.closing(Journal(settings.folder / JOURNAL)))
        bus = await Bus.connect(settings.bus)
        stack.push_async_callback(bus.close)
        supervisor = await stack.enter_async_context(Supervisor(bus, settings.name, state=settings.folder))
        tell = Teller(settings.node, settings.node_id, line)
        owners = Owners(settings.name)
        errands = Errands(bus, supervisor, tell, owners)
        desk = Desk(settings, journal, errands.carry)
        errands.desk, desk.on_given = desk, tell.given
        if settings.psyspec is not None:
            text, file = settings.psyspec
            await desk.offer(read_plan(text, settings.node, settings.node_id, file=file))
        answering = Answering(bus, settings, desk)
        errands.group = group = await stack.enter_async_context(asyncio.TaskGroup())
        serving = await bus.serve(
            pattern(bus.mesh, STARTUP_SPEC, node_id=settings.node_id, key=settings.name),
            answering.answer,
            refused=answering.refused,
        )
        stack.push_async_callback(serving.stop)
        announced = await announce(
            bus,
            "startup",
            version=installed(),
            description=f"the Startup Supervisor of node {settings.node}",
            metadata={
                "node": settings.node,
                "nodeid": settings.node_id,
                "protocols": f"builder-v{VERSION}",
            },
            endpoints=[serving],
        )
        stack.push_async_callback(announced.stop)
        group.create_task(desk.tick())
        group.create_task(errands.deliver())
        group.create_task(Cohorts(bus, desk).run())
        ready()
        await Watching(bus, desk, tell, owners).run()
