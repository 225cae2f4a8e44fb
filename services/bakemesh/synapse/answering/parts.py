"""What the verbs answer with: the parts of one module, by name."""

from __future__ import annotations

from dataclasses import dataclass

from bakemesh.artifacts import Cache
from bakemesh.bus import Bus
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.requests import WorkRequest
from bakemesh.synapse.answering.desk import Desk
from bakemesh.synapse.answering.ingest import Ingesting
from bakemesh.synapse.answering.request import Request
from bakemesh.synapse.answering.shelf import Shelf
from bakemesh.synapse.answering.streaming import Streams
from bakemesh.synapse.answering.texts import Texts
from bakemesh.synapse.lanes.base import Lanes
from bakemesh.synapse.scheduling.asks import Ask, Failed
from bakemesh.synapse.scheduling.core import Core


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """`default_s`: the time of a caller that names none."""

    bus: Bus
    desk: Desk
    shelf: Shelf
    texts: Texts
    streams: Streams
    ingesting: Ingesting
    cache: Cache
    core: Core
    lanes: Lanes
    default_s: float

    @property
    def most_bytes(self) -> int:
        """Of tensors in one answer: half of what the server takes."""
        return self.bus.max_payload // 2

    def ask(self, request: Request, message: WorkRequest) -> Ask:
        """The core's handle of a request for work, tied to its caller's wishes. Raises Failed."""
        limit = self.core.settings.bytes_in_flight
        if self.desk.bytes_inflight > limit:  # what is still to be read counts: the core has not seen it yet
            said = f"{self.desk.bytes_inflight} bytes of requests are here; {limit} are the most"
            raise Failed(error_of(Code.QUEUE_FULL, said, retry_after_ms=100))
        left_s = self.default_s if message.deadlinems is None else message.deadlinems / 1000
        request.deadline = request.began + left_s
        made = Ask(
            deadline=request.deadline,
            work_class=message.work_class,
            priority=message.priority,
            attempt=message.attempt,
            size=request.size,
            trace=None if request.span is None else request.span.traceparent,
        )
        request.on_cancel(made.cancel)
        return made
