"""Answers that come piece by piece, by server-sent events.

    data: {chunk}   for each piece · data: {chunk with usage}   where asked for · data: [DONE]
    data: {"error": …}                                          instead, where it fails on the way

Guarantees: what fails before the first piece is an error with its own status, not a stream; a client that
does not read until the request's time is over ends the generation. Closing is never left to the garbage
collector. Left out: a client that goes away, for which the server cancels us.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bakemesh.axon.failures import failure_of
from bakemesh.axon.mesh import Asking, Mesh
from bakemesh.axon.openai import answers
from bakemesh.axon.openai.asking import alias_of, prompts_of, turns_of, wanted_of
from bakemesh.axon.openai.refusals import Refused, of_failure
from bakemesh.axon.openai.requests import ChatRequest, CompletionRequest, Sampled
from bakemesh.axon.openai.whole import finished
from bakemesh.axon.streaming import cut
from bakemesh.bus.errors import BusError
from bakemesh.inference import InferenceError, Text, Token
from bakemesh.protocol.axon import sse

log = logging.getLogger(__name__)

EVENTS_AT_ONCE = 32  # then others have their turn: pieces that have come are given without a pause
LAST_S = 5.0  # for the client to take what is left
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
Pieces = AsyncGenerator[Token | Text, None]
Chunk = Callable[[Token | Text], answers.Answer]


class EventStream(Response):
    """A stream of pieces, of which `begin` has come. `chunk`: a piece as it is sent; `before`, `usage`: what
    is sent around them; `until`: by the loop's clock.
    """

    def __init__(
        self,
        pieces: Pieces,
        begin: Token | Text,
        chunk: Chunk,
        *,
        before: answers.Answer | None,
        usage: Callable[[Text], answers.Answer] | None,
        until: float,
    ) -> None:
        self._pieces, self._begin, self._chunk = pieces, begin, chunk
        self._before, self._usage, self._until = before, usage, until
        self.status_code, self.background, self.media_type = 200, None, "text/event-stream"
        self.init_headers(HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout_at(self._until):
                start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
                await send(start)
                async with aclosing(self._events()) as events:
                    sent = 0
                    async for event in events:
                        await send({"type": "http.response.body", "body": event, "more_body": True})
                        sent += 1
                        if not sent % EVENTS_AT_ONCE:
                            await asyncio.sleep(0)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.info("a client took too long to read its stream")
            cut(scope)
        finally:
            await self._pieces.aclose()

    async def _events(self) -> AsyncGenerator[bytes, None]:
        if self._before is not None:
            yield _event(self._before)
        try:
            piece: Token | Text = self._begin
            while True:
                yield _event(self._chunk(piece))
                if isinstance(piece, Text):
                    break
                piece = await anext(self._pieces)
        except (InferenceError, BusError) as error:
            failure = failure_of(error)
            log.info("a stream ended with %s: %s", failure.code, failure.inside)
            yield _event(of_failure(failure).body)
            return
        if self._usage is not None:
            yield _event(self._usage(piece))
        yield sse.DONE_EVENT


def _event(answer: answers.Answer) -> bytes:
    return b"data: %s\n\n" % answers.as_json(answer)


async def _begun(pieces: Pieces) -> Token | Text:
    """The first piece. Raises what the mesh does."""
    try:
        return await anext(pieces)
    except BaseException:
        await pieces.aclose()
        raise


def _with_usage(request: Sampled) -> bool:
    return bool(request.stream_options and request.stream_options.include_usage)


async def chat(mesh: Mesh, request: ChatRequest, asking: Asking) -> EventStream:
    """ChatChunks."""
    pieces, model = await mesh.stream(
        turns_of(request), alias_of(request.model), asking, wanted_of(request), chat=True
    )
    begin = await _begun(pieces)
    name, created = answers.new_id("chatcmpl"), answers.now()

    def made(
        delta: answers.Delta | None,
        reason: answers.FinishReason | None = None,
        usage: answers.Usage | None = None,
    ) -> answers.ChatChunk:
        choices = [] if delta is None else [answers.ChunkChoice(delta=delta, finish_reason=reason)]
        return answers.ChatChunk(id=name, created=created, model=model, choices=choices, usage=usage)

    def chunk(piece: Token | Text) -> answers.ChatChunk:
        if isinstance(piece, Token):
            return made(answers.Delta(content=piece.text))
        return made(answers.Delta(), finished(piece))

    return EventStream(
        pieces,
        begin,
        chunk,
        before=made(answers.Delta(role="assistant", content="")),
        usage=(lambda text: made(None, usage=_used(text))) if _with_usage(request) else None,
        until=asking.deadline + LAST_S,
    )


async def completion(mesh: Mesh, request: CompletionRequest, asking: Asking) -> EventStream:
    """Completions, a piece each. Raises Refused where there are several prompts."""
    prompts = prompts_of(request)
    if len(prompts) > 1:
        told = f"prompt: a stream has one prompt, these are {len(prompts)}; ask for each, or without stream"
        raise Refused(400, told, code="unsupported_parameter", param="prompt")
    pieces, model = await mesh.stream(prompts[0], alias_of(request.model), asking, wanted_of(request))
    begin = await _begun(pieces)
    name, created = answers.new_id("cmpl"), answers.now()

    def made(
        choices: list[answers.CompletionChoice], usage: answers.Usage | None = None
    ) -> answers.Completion:
        return answers.Completion(id=name, created=created, model=model, choices=choices, usage=usage)

    def chunk(piece: Token | Text) -> answers.Completion:
        if isinstance(piece, Token):
            return made([answers.CompletionChoice(text=piece.text, finish_reason=None)])
        return made([answers.CompletionChoice(text="", finish_reason=finished(piece))])

    return EventStream(
        pieces,
        begin,
        chunk,
        before=None,
        usage=(lambda text: made([], _used(text))) if _with_usage(request) else None,
        until=asking.deadline + LAST_S,
    )


def _used(text: Text) -> answers.Usage:
    return answers.Usage.of(text.n_prompt, text.n_generated)
