"""Tells the node's Builder how the component is: a request, repeated until a Result accepts it.

Bus and Builder may both be away (an upgrade, a crash): the component waits for them. A Builder that does not
know this start of the component says so, and then nobody wants this process any more.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from bakemesh.bus import Bus
from bakemesh.bus.errors import AccessDenied, BusClosed, BusError
from bakemesh.crank.start import ComponentStart
from bakemesh.protocol import subjects
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import Result, clip
from bakemesh.protocol.builder.node import ComponentReport

log = logging.getLogger(__name__)

_ANSWER_S: Final = 2.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class Unwanted(Exception):
    """Raised when the Builder does not know this start of the component."""


async def report_ready(bus: Bus, start: ComponentStart) -> None:
    """Returns when the Builder has taken it. Raises Unwanted, AccessDenied, BusClosed."""
    await _report(
        bus,
        start,
        ComponentReport(component=start.name, instance=start.instance, state="ready", summary="ready"),
    )


async def report_failed(bus: Bus, start: ComponentStart, summary: str, trace: str) -> None:
    """Returns when the Builder has taken it, or does not want it. Raises nothing of the bus."""
    report = ComponentReport(
        component=start.name,
        instance=start.instance,
        state="failed",
        summary=clip(summary),
        traceback=trace,
    )
    try:
        await _report(bus, start, report)
    except (BusError, Unwanted) as error:
        log.warning("the Builder was not told of the failure: %s", error)


async def _report(bus: Bus, start: ComponentStart, report: ComponentReport) -> None:
    subject = subjects.build(bus.mesh, start.node_id, start.name, subjects.NO_KEY, subjects.COMPONENT_REPORT)
    pause, said = _FIRST_PAUSE_S, ""
    while True:
        try:
            answer = (await bus.request(subject, report, _ANSWER_S)).message
        except (BusClosed, AccessDenied):
            raise
        except BusError as error:
            reason, wait = str(error), 0.0
        else:
            if isinstance(answer, Result):
                if answer.accepted:
                    return
                if answer.code == Code.UNKNOWN_COMPONENT:
                    raise Unwanted(answer.summary)
                reason, wait = f"{answer.code}: {answer.summary}", (answer.retryms or 0) / 1000
            else:
                reason, wait = f"the answer is a {answer.type}", 0.0
        if reason != said:
            said = reason
            log.info("%s is not reported yet: %s", report.state, reason)
        await asyncio.sleep(max(wait, pause))
        pause = min(_LONGEST_PAUSE_S, pause * 2)
