"""Which URL is what, who may ask it, and for how long.

    key ─→ place (rate, at once, all together) ─→ body ─→ the mesh ─→ answer, or stream

Guarantees: nothing of a request is read before its key is known; every answer that is no success is OpenAI's
error object with its status; a client that goes away ends its work; what a request holds is given back
whatever happens. Left out: what is asked (`whole`, `events`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from bakemesh.axon import exchange, refused
from bakemesh.axon.apikeys import ApiKeys
from bakemesh.axon.failures import failure_of
from bakemesh.axon.limiter import Clients, Gate
from bakemesh.axon.mesh import Asking, Mesh, traceparent_of
from bakemesh.axon.openai import answers, events, whole
from bakemesh.axon.openai.gone import unless_gone
from bakemesh.axon.openai.refusals import JSON, Refused, of_failure, of_validation
from bakemesh.axon.openai.requests import (
    Body,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RerankRequest,
)
from bakemesh.bus.errors import BusError
from bakemesh.inference import InferenceError
from bakemesh.protocol.axon.verdicts import HTTP_STATUS

log = logging.getLogger(__name__)

PREFIX = "/v1"
BUSY_S = 1.0
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Work = Callable[[Mesh, Any, Asking], Awaitable[bytes | Response]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take. `body_s`: for its body to arrive; `request_s`: for all of it."""

    body_bytes: int
    body_s: float
    request_s: float


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A POST. `work` answers bytes of JSON, or a stream."""

    path: str
    body: type[Body]
    answer: type[answers.Answer]
    work: Work
    says: str
    streams: type[answers.Answer] | None = None


async def _completion(mesh: Mesh, body: CompletionRequest, asking: Asking) -> bytes | Response:
    return await (events.completion if body.stream else whole.completion)(mesh, body, asking)


async def _chat(mesh: Mesh, body: ChatRequest, asking: Asking) -> bytes | Response:
    return await (events.chat if body.stream else whole.chat)(mesh, body, asking)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("/embeddings", EmbeddingRequest, answers.EmbeddingList, whole.embeddings, "Vectors of texts."),
    Endpoint(
        "/completions",
        CompletionRequest,
        answers.Completion,
        _completion,
        "Text that goes on from a prompt.",
        answers.Completion,
    ),
    Endpoint(
        "/chat/completions", ChatRequest, answers.Chat, _chat, "The next turn of a chat.", answers.ChatChunk
    ),
    Endpoint("/rerank", RerankRequest, answers.Ranking, whole.rerank, "Documents by how they fit a query."),
)
MODELS = "/models"


def openai_routes(mesh: Mesh, keys: ApiKeys, *, clients: Clients, gate: Gate, limits: Limits) -> list[Route]:
    """The routes below /v1. `clients`, `gate`: those of the whole gateway."""
    desk = Desk(mesh, keys, clients, gate, limits)
    routes = [
        Route(PREFIX + each.path, _Posted(desk, each), methods=["POST"], name=each.path) for each in ENDPOINTS
    ]
    routes.append(Route(PREFIX + MODELS, _Asked(desk, _models), methods=["GET"], name=MODELS))
    routes.append(
        Route(PREFIX + MODELS + "/{model:path}", _Asked(desk, _model), methods=["GET"], name="/model")
    )
    known = {each.path: "POST" for each in ENDPOINTS} | {MODELS: "GET"}
    routes.append(Route(PREFIX + "/{rest:path}", _Unknown(known), methods=METHODS, name="/v1"))
    return routes


@dataclass(frozen=True, slots=True)
class Desk:
    """What all of them share."""

    mesh: Mesh
    keys: ApiKeys
    clients: Clients
    gate: Gate
    limits: Limits

    def enter(self, request: Request) -> str:
        """Counts a request that may begin, and gives as whom; `leave` follows. Raises Refused."""
        who = self.keys.who(
            request.headers.get("authorization"), request.client.host if request.client else ""
        )
        if who is None:
            told = (
                "give a key of this gateway: `Authorization: Bearer bm-…`; `bakemesh axon-key new` makes one"
            )
            raise Refused(HTTPStatus.UNAUTHORIZED, told, code="invalid_api_key")
        if self.gate.full:
            told = "the gateway has as many requests as it takes at once; try again"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, told, code="overloaded", retry_after_s=BUSY_S)
        busy = self.clients.enter(who, asyncio.get_running_loop().time())
        if busy is not None:
            told = "this key has more requests than it may have, at once or a second; try again later"
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                told,
                code="rate_limit_exceeded",
                retry_after_s=busy.retry_after_s,
            )
        self.gate.running += 1
        return who

    def leave(self, who: str) -> None:
        """It is over."""
        self.gate.running -= 1
        self.clients.leave(who)

    def asking(self, request: Request) -> Asking:
        """Its time begins now."""
        deadline = asyncio.get_running_loop().time() + self.limits.request_s
        return Asking(deadline, traceparent=traceparent_of(request.headers.get("traceparent")))

    async def body(self, request: Request) -> bytes:
        """Raises Refused, ClientGone."""
        try:
            async with asyncio.timeout(self.limits.body_s):
                return await exchange.whole(
                    request.receive, self.limits.body_bytes, request.headers.get("content-length")
                )
        except TimeoutError:
            told = f"the body did not arrive within {self.limits.body_s:g} s"
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, told, code="timeout") from None
        except refused.Refused as error:
            raise Refused(HTTP_STATUS[error.verdict], error.reason, code=str(error.verdict)) from None


class _Answering:
    """An ASGI application that answers with what `_answer` gives, or with why not."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            who = self._desk.enter(request)
        except Refused as error:
            await error.response()(scope, receive, send)
            return
        try:
            try:
                response = await self._answer(request)
            except refused.ClientGone:
                return
            except Exception as error:  # noqa: BLE001 - the border: every error ends as an error object
                response = told(error)
            await response(scope, receive, send)
        finally:
            self._desk.leave(who)

    async def _answer(self, request: Request) -> Response:
        raise NotImplementedError


class _Posted(_Answering):
    """One of ENDPOINTS."""

    def __init__(self, desk: Desk, endpoint: Endpoint) -> None:
        super().__init__(desk)
        self._endpoint = endpoint

    async def _answer(self, request: Request) -> Response:
        asking = self._desk.asking(request)
        raw = await self._desk.body(request)
        try:
            body = self._endpoint.body.model_validate_json(raw)
        except ValidationError as error:
            raise of_validation(error, self._endpoint.body) from None
        work = self._work(body, asking)
        made = await unless_gone(request.receive, work)
        return made if isinstance(made, Response) else Response(made, media_type=JSON)

    async def _work(self, body: Any, asking: Asking) -> bytes | Response:
        try:
            return await self._endpoint.work(self._desk.mesh, body, asking)
        except InferenceError as error:
            failure = failure_of(error)
            log.info("%s: %s: %s", self._endpoint.path, failure.code, failure.inside)
            raise of_failure(failure, body.model) from None


class _Asked(_Answering):
    """A GET about models."""

    def __init__(self, desk: Desk, work: Callable[[Mesh, Request, float], Awaitable[answers.Answer]]) -> None:
        super().__init__(desk)
        self._find = work

    async def _answer(self, request: Request) -> Response:
        found = await self._find(self._desk.mesh, request, self._desk.asking(request).deadline)
        return Response(answers.as_json(found), media_type=JSON)


async def _models(mesh: Mesh, request: Request, deadline: float) -> answers.Answer:
    del request
    return answers.ModelList(data=await whole.models(mesh, deadline))


async def _model(mesh: Mesh, request: Request, deadline: float) -> answers.Answer:
    return await whole.model(mesh, request.path_params["model"], deadline)


class _Unknown:
    """What is below /v1 and is nothing, or is asked with another method."""

    def __init__(self, known: dict[str, str]) -> None:
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = "/" + scope["path_params"]["rest"]
        method = self._known.get(path) or ("GET" if path.startswith(MODELS + "/") else None)
        if method is None:
            told = f"no route {PREFIX}{path[:80]}; GET /openapi.json lists those there are"
            response = Refused(HTTPStatus.NOT_FOUND, told, code="unknown_url").response()
        else:
            told = f"{PREFIX}{path[:80]} is asked with {method}"
            response = Refused(HTTPStatus.METHOD_NOT_ALLOWED, told, code="method_not_allowed").response()
            response.headers["allow"] = method
        await response(scope, receive, send)


def told(error: Exception) -> Response:
    """The answer for whatever went wrong."""
    if isinstance(error, Refused):
        return error.response()
    if isinstance(error, InferenceError | BusError):
        failure = failure_of(error)
        log.info("%s: %s", failure.code, failure.inside)
        return of_failure(failure).response()
    log.error("a request failed", exc_info=error)
    told_ = "the gateway failed at this request; it is in its log"
    return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, told_, code="internal_error").response()
