"""Probe: tries a quarantined model now. An operator's, by the rights of the server."""

from __future__ import annotations

from bakemesh.protocol.inference.answers import Probed
from bakemesh.protocol.inference.requests import Probe
from bakemesh.synapse.answering.parts import Parts
from bakemesh.synapse.answering.request import Request
from bakemesh.synapse.scheduling.asks import TAKEN_BACK
from bakemesh.workerpool.models import key_of

VERB = "Probe"


async def probe(at: Parts, request: Request, message: Probe) -> None:
    """Answers one request. Raises what `error_from` knows."""
    known = at.shelf.find(request.alias)
    key = known.key
    if message.config is not None:
        config = {str(name): str(value) for name, value in message.config.items()}
        key = key_of(known.model.artifact, config)
    request.on_cancel(lambda: request.fail(TAKEN_BACK))
    free = await at.core.probe(key)
    request.end(Probed(request=request.id, state="ok" if free else "quarantined"))
