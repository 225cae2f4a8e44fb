"""What components say over the bus: Report (a request, answered), Watch (heard).

What is said counts for the instance that it names, and only while that is the component's own; its sender is
the component, which on a mesh with authentication the server vouches for. Guarantees: bounded memory,
whatever is sent; a report that was accepted is journaled. Codes, first that applies: malformed_message,
unauthorised, unknown_component (also: another instance, which is to end), rate_limited.
"""

from __future__ import annotations

import logging

from bakemesh.builder.bake.state import Refused
from bakemesh.builder.clock import Clock
from bakemesh.builder.components.component import Component
from bakemesh.builder.components.host import Components
from bakemesh.builder.components.life import ReportedFailed, ReportedReady
from bakemesh.builder.rates import Buckets, Rate
from bakemesh.builder.results import limited, result_of
from bakemesh.protocol.admit import Delivery, Refusal
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import Result
from bakemesh.protocol.builder.node import ComponentReport, ComponentWatch

log = logging.getLogger(__name__)
VERB = "Report"
REPORTS, WATCHES = Rate(5.0, 20.0), Rate(50.0, 200.0)  # of one component


class Reports:
    """Takes what the components of one Builder say."""

    def __init__(self, components: Components, clock: Clock) -> None:
        self.components, self.clock = components, clock
        self._reports, self._watches = Buckets(REPORTS), Buckets(WATCHES)

    async def answer(self, delivery: Delivery) -> Result:
        """The Result of a report."""
        message = delivery.received.message
        assert isinstance(message, ComponentReport)
        try:
            one = self._check(delivery, message)
            if message.state == "ready":
                await one.apply(ReportedReady(message.instance))
            else:
                await one.apply(ReportedFailed(message.instance, message.summary, message.traceback or ""))
        except Refused as refused:
            log.info("report of %s refused: %s", delivery.subject.party, refused.summary)
            return result_of(VERB, refused.code, refused.summary, refused.retry_ms)
        return result_of(VERB, Code.OK, "accepted")

    def _check(self, delivery: Delivery, message: ComponentReport) -> Component:
        party, name = delivery.subject.party, message.component
        if party != name:
            raise Refused(Code.UNAUTHORISED, f"sent by {party}, but it says that it is of {name:.64}")
        one = self.components.find(name)
        if one is None:
            raise Refused(Code.UNKNOWN_COMPONENT, f"this node has no component {name}")
        if one.life.instance != message.instance:
            raise Refused(
                Code.UNKNOWN_COMPONENT, f"instance {message.instance:.64} is not the present one of {name}"
            )
        if wait := self._reports.wait_s(name, self.clock.monotonic()):
            raise limited(f"reports of {name}", wait)
        return one

    def refused(self, refusal: Refusal) -> Result:
        """The Result of what does not decode."""
        return result_of(VERB, Code.MALFORMED_MESSAGE, refusal.detail)

    def watch(self, delivery: Delivery) -> None:
        """Keeps a live value; one too many, of somebody else or of an instance before, is dropped."""
        message, party = delivery.received.message, delivery.subject.party
        assert isinstance(message, ComponentWatch)
        one = self.components.find(message.component)
        if one is None or party != message.component or not one.life.alive:
            return
        if message.instance is not None and message.instance != one.life.instance:
            return
        if not self._watches.wait_s(party, self.clock.monotonic()):
            one.watched(message.key, message.value)
