"""Runs one crank: connect, open its session, report ready, call it, end it.

    loaded ──→ connected ──→ subscribed ──→ reported ──→ called ──→ it returned      exit 0
      │            │                            │           ├─ it raised     report failed, exit 70
      │            │                            │           └─ TERM: it has its shutdown time, exit 0
      │            │                            └─ the Builder does not know this start      exit 69
      └────────────┴─ no script, no function, no right on the bus      report failed, exit 70

Every wait before the call ends at TERM, with exit 0.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.crank.reporting import Unwanted, report_failed, report_ready
from bakemesh.crank.serviced import DONE, FAILED, UNWANTED, connected
from bakemesh.crank.session import Session
from bakemesh.crank.start import Start
from bakemesh.crankhost.calling import Running
from bakemesh.crankhost.failing import Failure, failure_of

log = logging.getLogger(__name__)

_TELL_S: Final = 10.0  # how long a failure tries to reach the Builder
_TELL_STOPPING_S: Final = 1.0
_CANCELLED_S: Final = 0.3  # for a cancelled crank to clean up

Loaded = Callable[..., Any] | Failure
T = TypeVar("T")


class _Stopped(Exception):
    """Raised when TERM came before the crank was called."""


async def run(start: Start, loaded: Loaded, file: str, stop: asyncio.Event) -> int:
    """Gives the exit code. `loaded`: the function, or why there is none; `file`: the script's."""
    try:
        bus = await _or_stop(connected(start), stop)
    except _Stopped:
        return DONE
    except BusError as error:  # with these credentials, or this server, never
        _say(Failure(f"no connection to the bus: {error}", ""))
        return FAILED
    try:
        if isinstance(loaded, Failure):
            return await _fail(bus, start, loaded, stop)
        return await _with_session(bus, start, loaded, file, stop)
    finally:
        await bus.close()


async def _with_session(
    bus: Bus, start: Start, function: Callable[..., Any], file: str, stop: asyncio.Event
) -> int:
    session = Session(bus, start)
    well = False
    try:
        try:
            await _or_stop(session.open(), stop)
            await _or_stop(report_ready(bus, start), stop)
        except _Stopped:
            return DONE
        except Unwanted as error:
            log.warning("the Builder does not know this start of %s: %s", start.name, error)
            return UNWANTED
        except BusError as error:
            return await _fail(bus, start, Failure(str(error), ""), stop)
        raised = await _called(session, function, stop)
        well = raised is None
        if raised is None:
            return DONE
        return await _fail(bus, start, failure_of(raised, file), stop)
    finally:
        await session.close(well=well)


async def _called(
    session: Session, function: Callable[..., Any], stop: asyncio.Event
) -> BaseException | None:
    """Calls it and waits for its end. None: it came through, or was stopped."""
    running = Running(function, session.api)
    stopping = asyncio.create_task(stop.wait())
    ends: set[asyncio.Future[Any]] = {running.ended, stopping, session.closed}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if not running.ended.done():
        session.stop()
        seconds = session.start.shutdown_s
        await asyncio.wait({running.ended}, timeout=seconds)
        if not running.ended.done():
            log.warning("the crank did not return within the %g s it has; it is cut off", seconds)
            running.abandon()
            await asyncio.wait({running.ended}, timeout=_CANCELLED_S)
    if running.ended.done() and (error := running.ended.result()) is not None:
        return error
    if session.closed.done() and not stop.is_set():
        return ConnectionError(f"the server closed the connection for good: {session.closed.result()}")
    return None


async def _fail(bus: Bus, start: Start, failure: Failure, stop: asyncio.Event) -> int:
    """Says it, and tells the Builder as far as there is time; less of it once TERM came."""
    _say(failure)
    telling = asyncio.create_task(report_failed(bus, start, failure.summary, failure.trace))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({telling, stopping}, timeout=_TELL_S, return_when=asyncio.FIRST_COMPLETED)
        if not telling.done():
            await asyncio.wait({telling}, timeout=_TELL_STOPPING_S)
    finally:
        stopping.cancel()
        telling.cancel()
    return FAILED


def _say(failure: Failure) -> None:
    """To the component's own log, as Python itself would."""
    log.error("the component failed: %s", failure.summary)
    if failure.trace:
        print(failure.trace, end="", file=sys.stderr, flush=True)


async def _or_stop(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T:
    """What `work` gives. Raises _Stopped where TERM comes first."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        doing.cancel()
        await asyncio.wait({doing})
        raise _Stopped
    finally:
        stopping.cancel()
