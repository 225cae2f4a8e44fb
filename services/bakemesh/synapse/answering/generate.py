"""Generate: a prompt, a chat or ids into Text, token by token before it where that was asked for."""

from __future__ import annotations

from contextlib import aclosing

from bakemesh.protocol.inference.answers import Text, Token
from bakemesh.protocol.inference.errors import Code, error_of
from bakemesh.protocol.inference.requests import Generate
from bakemesh.synapse.answering.given import given_prompt
from bakemesh.synapse.answering.parts import Parts
from bakemesh.synapse.answering.request import Request
from bakemesh.synapse.answering.shelf import Known
from bakemesh.synapse.answering.texts import inline
from bakemesh.synapse.models.model import Model
from bakemesh.synapse.scheduling.asks import Ask, Failed
from bakemesh.workerpool import models as pool
from bakemesh.workerpool.models import Sampling

VERB = "Generate"
QUEUED, LOADING, RUNNING = "queued", "loading", "running"


def sampling_of(message: Generate) -> Sampling | None:
    """What a lane is asked beside the ids; None: greedy and free, which every lane can. Raises Failed."""
    if message.grammar is not None and message.jsonschema is not None:
        raise Failed(
            error_of(Code.BAD_REQUEST, "a text cannot follow a grammar and a jsonschema at once: give one")
        )
    drawn = bool(message.temperature)  # else the token is the likeliest, whatever stands beside it
    bound = message.grammar is not None or message.jsonschema is not None or message.stop
    if not drawn and not bound:
        return None
    return Sampling(
        grammar=message.grammar,
        json_schema=message.jsonschema,
        temperature=message.temperature,
        top_k=message.topk if drawn else None,
        top_p=message.topp if drawn else None,
        min_p=message.minp if drawn else None,
        seed=message.seed if drawn else None,
        stop=tuple(message.stop or ()),
    )


async def generate(at: Parts, request: Request, message: Generate) -> None:
    """Answers one request. Raises what `error_from` knows."""
    known = at.shelf.find(request.alias, "generate")
    ask = at.ask(request, message)
    sampling = sampling_of(message)
    ids = await _prompt(at, request, known, message)
    if message.stream:
        await _stream(at, request, known, message, ids, sampling, ask)
        return
    asked = at.core.generate(known.key, ids, message.maxtokens, sampling, ask, stream=False)
    async with aclosing(asked):
        async for piece in asked:
            if isinstance(piece, pool.Text):
                request.end(_text(request, piece))


async def _stream(
    at: Parts,
    request: Request,
    known: Known,
    message: Generate,
    ids: bytes,
    sampling: Sampling | None,
    ask: Ask,
) -> None:
    state = QUEUED

    def now() -> str:
        if state == QUEUED and known.key not in at.core.status().loaded:
            return LOADING
        return state

    asked = at.core.generate(known.key, ids, message.maxtokens, sampling, ask)
    with at.streams.of(request, now) as stream:
        async with aclosing(asked):
            async for piece in asked:
                if isinstance(piece, pool.Token):
                    state = RUNNING
                    request.part(
                        Token(request=request.id, index=piece.index, text=piece.text), stream.reply()
                    )
                    if at.bus.link.crowded:
                        await at.bus.link.settle()
                else:
                    request.end(_text(request, piece))


def _text(request: Request, end: pool.Text) -> Text:
    return Text(
        request=request.id,
        text=end.text,
        finishreason=end.finish_reason,
        nprompt=end.n_prompt,
        ngen=end.n_gen,
    )


async def _prompt(at: Parts, request: Request, known: Known, message: Generate) -> bytes:
    """The ids of the one that is given of prompt, messages and data. Raises Failed."""
    given = [each for each in (message.prompt, message.messages, message.data) if each is not None]
    if len(given) != 1:
        raise Failed(error_of(Code.BAD_REQUEST, "a Generate has one of prompt, messages and data"))
    if message.data is not None:
        return given_prompt(message.data)
    if message.prompt is not None:
        text = message.prompt
        if inline(known, len(text)):
            return known.model.tokenizer.prompt_ids(text, special=False)
        return await at.texts.made(
            request, known, lambda: known.model.tokenizer.prompt_ids(text, special=False)
        )
    turns = message.messages or []
    return await at.texts.made(request, known, lambda: _chat(known.model, turns))


def _chat(model: Model, turns: list[dict[str, object]]) -> bytes:
    return model.tokenizer.prompt_ids(model.render(turns), special=True)
