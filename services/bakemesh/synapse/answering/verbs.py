"""Which message is answered by what, and where it comes in.

Requests of this node, and those of `any` in a queue group; Cancel of `any` without one, for every node gets
it. A message that cannot be read is answered too, by an Error with its id where that could be read. All of it
in plain callbacks: a request costs a task only where its work does.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.verbs import Subscription
from bakemesh.protocol.admit import Delivery, Refusal
from bakemesh.protocol.inference.answers import Error
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.message import Message
from bakemesh.protocol.subjects import ANY_NODE, SYNAPSE, pattern
from bakemesh.synapse.answering.artifact import artifact
from bakemesh.synapse.answering.desk import Desk
from bakemesh.synapse.answering.embed import embed
from bakemesh.synapse.answering.endpoint import Endpoint
from bakemesh.synapse.answering.generate import generate
from bakemesh.synapse.answering.looking import health, models
from bakemesh.synapse.answering.mapping import error_from
from bakemesh.synapse.answering.parts import Parts
from bakemesh.synapse.answering.probe import probe
from bakemesh.synapse.answering.request import Request
from bakemesh.synapse.answering.rerank import rerank

log = logging.getLogger(__name__)

QUEUE: Final = "synapse"
CANCEL: Final = "Cancel"

# A verb gives what is to be awaited for its answer, or has answered (or seen to it) when it returns.
Verb = Callable[[Parts, Request, Any], Awaitable[None] | None]


async def _ingest(at: Parts, request: Request, message: Any) -> None:
    await at.ingesting.ingest(request, message)


def _models(at: Parts, request: Request, _: Any) -> None:
    models(at, request)


def _health(at: Parts, request: Request, _: Any) -> None:
    health(at, request)


# verb → how it is answered, and whether any node may
VERBS: Final[dict[str, tuple[Verb, bool]]] = {
    "Embed": (embed, True),
    "Rerank": (rerank, True),
    "Generate": (generate, True),
    "Models": (_models, True),
    "Health": (_health, True),
    "Probe": (probe, False),
    "Ingest": (_ingest, False),
    "Artifact": (artifact, False),
}


class Verbs:
    """The subscriptions. `endpoints`: what `$SRV` shows."""

    def __init__(self, at: Parts, node_id: str) -> None:
        self._at, self._node_id = at, node_id
        self._open: list[Subscription] = []
        self.endpoints: list[Endpoint] = []

    async def open(self) -> None:
        """Subscribes; the server has all of it when this returns. Raises BusError."""
        bus = self._at.bus
        for verb, (answer, any_node) in VERBS.items():
            subject = partial(pattern, bus.mesh, f"{SYNAPSE}.{verb}")
            for node, queue in ((self._node_id, ""), (ANY_NODE, QUEUE))[: 2 if any_node else 1]:
                endpoint = Endpoint(verb, subject(node_id=node), queue)
                self.endpoints.append(endpoint)
                take = partial(self._take, endpoint, answer)
                refused = partial(unreadable, bus)
                self._open.append(await bus.subscribe(endpoint.pattern, take, queue=queue, refused=refused))
        cancels = partial(pattern, bus.mesh, f"{SYNAPSE}.{CANCEL}")
        for node in (self._node_id, ANY_NODE):
            self._open.append(await bus.subscribe(cancels(node_id=node), partial(cancelled, self._at.desk)))

    async def close(self) -> None:
        """Takes no more."""
        some, self._open = self._open, []
        for each in some:
            await each.stop()

    def _take(self, endpoint: Endpoint, answer: Verb, delivery: Delivery) -> None:
        request = self._at.desk.open(endpoint, delivery)
        if request is None:
            return
        try:
            work = answer(self._at, request, delivery.received.message)
        except Exception as error:  # noqa: BLE001 - the border: whatever it is, the caller is answered
            request.fail(error_from(error))
            return
        if inspect.iscoroutine(work):
            self._at.desk.run(request, work)


def cancelled(desk: Desk, delivery: Delivery) -> None:
    """A Cancel: no answer of its own. Only the caller itself takes a request back: the subject names it."""
    message: Any = delivery.received.message
    desk.cancel(delivery.subject.party, message.request)


def unreadable(bus: Bus, refusal: Refusal) -> Message | None:
    """Answers what was refused, where it may be answered and says which request it is."""
    if refusal.reply is not None and refusal.id is not None:
        said = Error.of(refusal.id, error_of(Code.BAD_REQUEST, refusal.detail))
        try:
            bus.link.post(refusal.reply, bus.seal(said).payload)
        except BusError as error:
            log.warning("refusal of %s not answered: %s", refusal.subject, error)
    return None
