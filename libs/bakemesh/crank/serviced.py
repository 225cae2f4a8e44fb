"""One of bakemesh's own services as a component: its bus, its report to the Builder, its end.

    TERM at any time ─→ `stop` is set: the work ends in good order, exit 0
    connected ─→ working ─→ it says ready ─→ reported ─→ the work raised: report failed, exit 70
                                                └─ the Builder does not know this start: stop, exit 69

Guarantees: a bus or a Builder that is away is waited for; the health subject of its spec, where it has one,
is answered from the loop that does the work. Left out: what it does (`Work`), and its parameters.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError, BusUnreachable
from bakemesh.crank.reporting import Unwanted, report_failed, report_ready
from bakemesh.crank.start import ComponentStart, ServiceStart
from bakemesh.protocol import subjects
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import Result
from bakemesh.protocol.builder.node import TRACEBACK_BYTES
from bakemesh.protocol.rights import builder_name

log = logging.getLogger(__name__)

DONE: Final = 0
UNWANTED: Final = 69
FAILED: Final = 70

_TELL_S: Final = 10.0  # how long a failure tries to reach the Builder
_PAUSE_S: Final = (0.1, 1.0)

Ready = Callable[[], None]
Work = Callable[[Bus, asyncio.Event, Ready], Awaitable[None]]  # returns soon after the event is set


async def run_component(start: ServiceStart, work: Work, stop: asyncio.Event | None = None) -> int:
    """Runs it until TERM, INT or `stop`; gives the exit code."""
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(sign, stop.set)
    connecting = loop.create_task(connected(start))
    await _first(connecting, stop)
    if not connecting.done():
        connecting.cancel()
        await asyncio.wait({connecting})
        return DONE
    try:
        bus = connecting.result()
    except BusError as error:  # with these credentials, or this server, never
        log.error("no connection to the bus: %s", error)
        return FAILED
    async with bus:
        return await _work(bus, start, work, stop)


async def connected(start: ComponentStart) -> Bus:
    """The bus, as soon as it is there. Raises AccessDenied, BadCredentials."""
    while True:
        try:
            return await Bus.connect(start.bus())
        except BusUnreachable as error:
            log.warning("waiting for the bus: %s", error)
            await asyncio.sleep(random.uniform(*_PAUSE_S))


async def _work(bus: Bus, start: ServiceStart, work: Work, stop: asyncio.Event) -> int:
    unwanted = False
    reporting: asyncio.Task[None] | None = None

    def reported(task: asyncio.Task[None]) -> None:
        nonlocal unwanted
        if task.cancelled() or (error := task.exception()) is None:
            return
        unwanted = isinstance(error, Unwanted)
        log.warning("%s is not taken as ready: %s", start.name, error)
        if unwanted:
            stop.set()

    def ready() -> None:
        nonlocal reporting
        reporting = asyncio.ensure_future(report_ready(bus, start))
        reporting.add_done_callback(reported)

    async with AsyncExitStack() as stack:
        try:
            if start.spec.health is not None and start.spec.health.subject is not None:
                party, subject = builder_name(start.node_id), start.spec.health.subject
                own = subjects.build(bus.mesh, start.node_id, party, start.name, subject)
                stack.push_async_callback((await bus.serve(own, alive)).stop)
            await work(bus, stop, ready)
        except Exception as error:
            log.exception("%s failed", start.name)
            trace = "".join(traceback.format_exception(error)).encode()[-TRACEBACK_BYTES:]
            said = trace.decode("utf-8", "ignore")
            telling = asyncio.ensure_future(
                report_failed(bus, start, f"{type(error).__name__}: {error}", said)
            )
            await _first(telling, stop, _TELL_S)
            telling.cancel()
            return FAILED
        finally:
            if reporting is not None:
                reporting.cancel()
    return UNWANTED if unwanted else DONE


async def _first(task: asyncio.Future[Any], stop: asyncio.Event, within_s: float | None = None) -> None:
    """Returns when the task is over, when `stop` is set, or when the time is."""
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopping}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


def alive(_: Delivery) -> Result:
    """Answered in the loop: who blocks its loop is silent."""
    return Result(verb="Health", accepted=True, code=Code.OK, summary="alive")
