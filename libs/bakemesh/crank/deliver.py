"""Messages that came for the node, handed over by its Builder: taken, or refused with the reason."""

from __future__ import annotations

from bakemesh.crank.backlog import MOST, Item
from bakemesh.crank.mailbox import Mailbox
from bakemesh.crank.messages import CrankMessage, Entries
from bakemesh.crank.nearest import suggestion
from bakemesh.crank.triggers import Triggers
from bakemesh.protocol.admit import Delivery
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import Result, clip
from bakemesh.protocol.builder.node import ComponentDeliver
from bakemesh.protocol.builder.spec.component import Trigger

VERB = "Deliver"


def answer(code: Code, summary: str) -> Result:
    """The Result of a delivery."""
    return Result(verb=VERB, accepted=code is Code.OK, code=code, summary=clip(summary))


def judge(component: str, triggers: Triggers, message: ComponentDeliver, waiting: int) -> Trigger | Result:
    """The trigger that a delivery wakes, or why it is refused; `waiting`: how many like it wait. Pure."""
    if message.component != component:
        return answer(Code.UNKNOWN_COMPONENT, f"here is {component}, not {message.component}")
    trigger = triggers.named(message.trigger)
    if trigger is None:
        known = [each.name for each in triggers.all]
        near = suggestion(message.trigger, known)
        return answer(
            Code.MALFORMED_MESSAGE,
            f"{component} has no trigger {message.trigger!r}; it has {', '.join(known) or 'none'}{near}",
        )
    if waiting >= MOST:
        return answer(Code.RATE_LIMITED, f"{component} has {waiting} messages to work on; try again later")
    return trigger


class Delivered:
    """The service's handler."""

    def __init__(self, component: str, triggers: Triggers, mailbox: Mailbox) -> None:
        self._component, self._triggers, self._mailbox = component, triggers, mailbox

    def __call__(self, delivery: Delivery) -> Result:
        """Takes one."""
        given = delivery.received.message
        assert isinstance(given, ComponentDeliver)  # the subject's type is the envelope's
        found = judge(self._component, self._triggers, given, self._mailbox.backlog.kept)
        if isinstance(found, Result):
            return found
        sender, _, node_id = given.sender.partition("@")
        message = CrankMessage(
            found.name,
            given.type_,
            Entries(given.payload),
            sender,
            node_id or delivery.subject.node_id,
            delivery.received.created,
            delivery.received.id.hex(),
        )
        self._mailbox.put(Item(message, len(delivery.payload), kept=True), found.after_ms / 1000)
        return answer(Code.OK, f"{self._component} has it")
