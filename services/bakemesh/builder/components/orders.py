"""What is asked of a component: Restart, Stop, Start, Remove; requests, answered at once with a typed Result.

An accepted one is journaled when it is answered; how far it is, SystemStatus says. Allowed: the component's
owner, operators; on a mesh without authentication everybody. Codes: `COMPONENT_CODES`, the first that
applies; a draining node starts nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bakemesh.builder.bake.state import Refused
from bakemesh.builder.clock import Clock
from bakemesh.builder.components.component import Component
from bakemesh.builder.components.host import Components
from bakemesh.builder.components.life import Event, Remove, Restart, Start, Stop
from bakemesh.builder.rates import Buckets
from bakemesh.builder.results import limited, result_of
from bakemesh.protocol.admit import Delivery, Refusal
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import Result
from bakemesh.protocol.builder.node import ComponentControl, ComponentVerb

log = logging.getLogger(__name__)


class Orders:
    """Answers the ComponentControls of one Builder. `open_to_all`: nobody is asked who he is."""

    def __init__(
        self,
        components: Components,
        operators: frozenset[str],
        buckets: Buckets,
        clock: Clock,
        *,
        open_to_all: bool,
        draining: Callable[[], bool],
    ) -> None:
        self.components, self.operators, self.open_to_all = components, operators, open_to_all
        self._buckets, self._clock, self._draining = buckets, clock, draining

    async def answer(self, delivery: Delivery) -> Result:
        """The Result of one request."""
        message, verb = delivery.received.message, delivery.subject.type.rpartition(".")[2]
        assert isinstance(message, ComponentControl)
        try:
            one, known = self._check(delivery, message, verb)
            if not await self.components.ask(one.name, _event(known, message.issuedby)):
                raise Refused(Code.UNKNOWN_COMPONENT, f"component {one.name} was removed meanwhile")
        except Refused as refused:
            log.info(
                "%.64s of component %.64s by %s refused: %s",
                verb,
                message.component,
                delivery.subject.party,
                refused.summary,
            )
            return result_of(verb, refused.code, refused.summary, refused.retry_ms)
        log.info("%s of component %s by %s", known, one.name, message.issuedby)
        said = "removed" if one.gone else f"it is {one.life.state}"
        return result_of(verb, Code.OK, f"accepted; {said}")

    def refused(self, refusal: Refusal) -> Result:
        """The Result of what does not decode."""
        verb = "" if refusal.subject is None else refusal.subject.type.rpartition(".")[2]
        return result_of(verb, Code.MALFORMED_MESSAGE, refusal.detail)

    def _check(
        self, delivery: Delivery, message: ComponentControl, verb: str
    ) -> tuple[Component, ComponentVerb]:
        party, name, issuer = delivery.subject.party, message.component, message.issuedby
        if name != delivery.subject.key:
            raise Refused(
                Code.MALFORMED_MESSAGE,
                f"component {name:.64} is not the subject's key {delivery.subject.key}",
            )
        try:
            known = ComponentVerb(verb)
        except ValueError:
            verbs = ", ".join(ComponentVerb)
            raise Refused(Code.MALFORMED_VERB, f"{verb:.64} is no verb; verbs: {verbs}") from None
        one = self.components.find(name)
        if one is None:
            raise Refused(Code.UNKNOWN_COMPONENT, f"this node has no component {name}")
        if party != issuer:
            raise Refused(Code.UNAUTHORISED, f"sent by {party}, but issuedby says {issuer:.64}")
        if not (self.open_to_all or issuer == one.row.owner or issuer in self.operators):
            raise Refused(
                Code.UNAUTHORISED, f"{issuer:.64} neither owns {name} nor is an operator of this node"
            )
        if self._draining() and known in (ComponentVerb.START, ComponentVerb.RESTART):
            raise Refused(Code.DRAINING, "the node is draining: it starts nothing")
        if wait := self._buckets.wait_s(issuer, self._clock.monotonic()):
            raise limited(f"controls of {issuer:.64}", wait)
        return one, known


def _event(verb: ComponentVerb, issuer: str) -> Event:
    match verb:
        case ComponentVerb.RESTART:
            return Restart()
        case ComponentVerb.STOP:
            return Stop(f"stopped by {issuer}")
        case ComponentVerb.START:
            return Start()
        case ComponentVerb.REMOVE:
            return Remove()
