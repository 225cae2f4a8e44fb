"""Every request that has not ended: by whom and by what id, how many bytes, and what is refused now.

Guarantees: a request is here from when it is taken until its last answer; `bytes_inflight` is 0 when nothing
is; one that comes while the module drains is answered `module_restarted` at once. Left out: what is done
about a request (the verbs), and its deadline (the core, and `texts` before that).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from bakemesh.bus import Bus
from bakemesh.bus.sealing import payload_of
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.inference.answers import Answer
from bakemesh.protocol.inference.errors import Code, ErrorObject, error_of
from bakemesh.synapse.answering.endpoint import Endpoint
from bakemesh.synapse.answering.mapping import NO_RESULT, error_from
from bakemesh.synapse.answering.request import Request
from bakemesh.telemetry import OFF, TRACEPARENT, SpanKind, Telemetry

log = logging.getLogger(__name__)

DRAINING: Final = error_of(
    Code.MODULE_RESTARTED, "this module is ending; ask another node, or again in a moment", retry_after_ms=500
)


class Desk:
    """See the module. `changed` is called whenever a request came or went."""

    def __init__(self, bus: Bus, telemetry: Telemetry = OFF) -> None:
        self._bus, self._telemetry = bus, telemetry
        self._sender = bus.settings.sender
        self._requests: dict[tuple[str, bytes], Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._clock = asyncio.get_running_loop().time
        self.bytes_inflight = 0
        self.draining = False
        self.changed: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        """How many have not ended."""
        return len(self._requests)

    # -- coming and going

    def open(self, endpoint: Endpoint, delivery: Delivery) -> Request | None:
        """The request in a message; None where it is refused (and answered) or nobody waits for an answer."""
        where, received, reply, headers, payload = delivery
        if reply is None:
            return None
        request = Request(
            self, endpoint, where.party, where.key, received.id, reply, len(payload), self._clock()
        )
        key = (where.party, received.id)
        taken = key in self._requests
        if not taken:
            self._requests[key] = request
            self._empty.clear()
        self.bytes_inflight += request.size
        if self._telemetry.on:
            request.span = self._telemetry.span(
                f"synapse {endpoint.verb}",
                SpanKind.SERVER,
                parent=headers.get(TRACEPARENT),
                attributes={"synapse.alias": where.key, "synapse.caller": where.party},
            )
        if taken:
            request.fail(
                error_of(
                    Code.BAD_REQUEST, "a request with this envelope id is not answered yet; draw a new id"
                )
            )
        elif self.draining:
            request.fail(DRAINING)
        else:
            self.changed()
            return request
        return None

    def over(self, request: Request, error: ErrorObject | None) -> None:
        """The request's last answer is given."""
        key = (request.party, request.id)
        if self._requests.get(key) is request:
            del self._requests[key]
            if not self._requests:
                self._empty.set()
        self.bytes_inflight -= request.size
        took = self._clock() - request.began
        said = None if error is None else str(error)
        request.endpoint.ended(took, said)
        if request.span is not None:
            told = {"verb": request.endpoint.verb, "outcome": "ok" if error is None else error.code}
            self._telemetry.count("synapse.requests", 1, told)
            self._telemetry.record("synapse.request.duration", took, told)
            request.span.end(said)
        self.changed()

    def cancel(self, party: str, id: bytes) -> None:  # noqa: A002
        """The caller wants it no more; one that is not here (any more) is nothing."""
        request = self._requests.get((party, id))
        if request is not None:
            request.cancel()

    # -- working and answering

    def run(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        """Lets `work` answer it. Whatever it raises is the answer; where it gives none, that is a failure."""
        task = asyncio.create_task(self._guard(request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            request.fail(DRAINING)
            raise
        except Exception as error:  # noqa: BLE001 - the border: whatever it is, the caller is answered
            request.fail(error_from(error))
        if not request.ended:
            log.error("%s of %s ended without an answer", request.endpoint.verb, request.party)
            request.fail(NO_RESULT)

    def send(self, subject: str, answer: Answer, reply: str = "") -> None:
        """One message to a caller. Raises BusError."""
        self._bus.link.post(subject, payload_of(answer, self._sender), reply)

    # -- ending

    async def drain(self, grace_s: float) -> None:
        """Refuses what comes from now on, and returns when nothing is left, or after `grace_s`."""
        self.draining = True
        try:
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        except TimeoutError:
            log.info("%d requests did not end in %g s", len(self._requests), grace_s)

    async def close(self) -> None:
        """Ends what is left with `module_restarted`."""
        self.draining = True
        for request in list(self._requests.values()):
            request.fail(DRAINING)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
