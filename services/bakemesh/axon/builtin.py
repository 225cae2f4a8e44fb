"""The synapses that the mesh itself serves: TextPrompt, Embedding, Rerank (protocol/axon-v1.md, section 10).

Guarantees: nothing is asked beyond the request's deadline; its priority, cut to what the mesh knows, orders
it there; a client that goes away cancels what runs for it. What the mesh cannot do is told by `failures`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager

from bakemesh.axon.failures import failure_of
from bakemesh.axon.mesh import Asking, Mesh, clamped, traceparent_of
from bakemesh.bus.errors import BusError
from bakemesh.edge import Axon, Call, Guard, HandlerRefused
from bakemesh.inference import InferenceError, Token
from bakemesh.inference.options import GenerateOptions
from bakemesh.protocol.axon import Embedding, Rerank, Tensor, TextPrompt

log = logging.getLogger(__name__)


def attach_builtin(axon: Axon, mesh: Mesh) -> None:
    """Serves them; the axon's guard stands before all of them. One whose name the axon serves already stays
    as its author made it.
    """
    served, guard = Builtin(mesh), axon.guarded or Guard()
    for kind, forward in (
        (TextPrompt, served.text_prompt),
        (Embedding, served.embedding),
        (Rerank, served.rerank),
    ):
        if kind.route() not in axon.routes:
            axon.attach(forward, guard.blacklist_fn, guard.priority_fn)


class Builtin:
    """Their handlers."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    async def text_prompt(self, synapse: TextPrompt, call: Call) -> TextPrompt | AsyncIterator[str]:
        """The completion, or its parts."""
        if synapse.stream:
            return self._parts(synapse, call)
        with _told("TextPrompt"):
            text, _ = await self._mesh.generate(synapse.prompt, None, _asking(call), _wanted(synapse))
        synapse.completion = text.text
        return synapse

    async def _parts(self, synapse: TextPrompt, call: Call) -> AsyncIterator[str]:
        with _told("TextPrompt"):
            found, _ = await self._mesh.stream(synapse.prompt, None, _asking(call), _wanted(synapse))
            async with aclosing(found):
                async for part in found:
                    if isinstance(part, Token):
                        yield part.text

    async def embedding(self, synapse: Embedding, call: Call) -> Embedding:
        """The vectors."""
        with _told("Embedding"):
            found = await self._mesh.embed(synapse.texts, None, _asking(call))
        synapse.embeddings = Tensor.from_numpy(found.vectors)
        return synapse

    async def rerank(self, synapse: Rerank, call: Call) -> Rerank:
        """The scores."""
        with _told("Rerank"):
            found = await self._mesh.rerank(synapse.query, synapse.documents, None, _asking(call))
        synapse.scores = found.scores.tolist()
        return synapse


def _asking(call: Call) -> Asking:
    return Asking(call.deadline, clamped(call.priority), traceparent_of(call.traceparent))


def _wanted(synapse: TextPrompt) -> GenerateOptions:
    return {"max_tokens": synapse.max_tokens, "temperature": synapse.temperature}


@contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except (InferenceError, BusError) as error:
        failure = failure_of(error)
        log.info("%s: %s: %s", name, failure.code, failure.inside)
        raise HandlerRefused(failure.verdict, failure.message, failure.retry_after_s) from None
