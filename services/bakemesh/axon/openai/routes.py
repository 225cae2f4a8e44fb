"""Which URL is what, who may ask it, and for how long.

    address, key ─→ place (rate, at once) ─→ body ─→ the mesh ─→ answer, or stream

Guarantees: nothing of a body is read before its key is known; every answer of these routes that is no success
is OpenAI's error object with its status; what a request holds is given back whatever happens. Left out: what
is asked (`whole`, `events`), what holds for the whole gateway (`app`: how many at once; the server: time for
receiving, clients that go away).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from prometheus_client import Counter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from bakemesh.axon import exchange, refused
from bakemesh.axon.apikeys import ApiKeys
from bakemesh.axon.failures import failure_of
from bakemesh.axon.gateway import GatewayState
from bakemesh.axon.mesh import Asking, Mesh, traceparent_of
from bakemesh.axon.openai import answers, events, whole
from bakemesh.axon.openai.refusals import JSON, Refused, no_model, of_failure, of_validation
from bakemesh.axon.openai.requests import (
    Body,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RerankRequest,
)
from bakemesh.bus.errors import BusError
from bakemesh.inference import InferenceError, ModelUnknown, Usage
from bakemesh.protocol.axon.verdicts import HTTP_STATUS, Verdict

log = logging.getLogger(__name__)

PREFIX = "/v1"
PROFILE = "openai"  # in the metrics
KEY, OPEN = "key:", "open"
# In the metrics: how a status is counted.
VERDICTS = {
    200: Verdict.OK,
    400: Verdict.BAD_BODY,
    401: Verdict.BAD_KEY,
    403: Verdict.BLACKLISTED,
    404: Verdict.UNKNOWN_ROUTE,
    408: Verdict.TIMED_OUT,
    413: Verdict.BODY_TOO_LARGE,
    429: Verdict.TOO_MANY,
    503: Verdict.OVERLOADED,
}
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Work = Callable[[Mesh, Any, Asking], Awaitable[bytes | Response]]
Find = Callable[[Mesh, Request, Asking], Awaitable[answers.Answer]]


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


def openai_routes(mesh: Mesh, keys: ApiKeys, state: GatewayState) -> list[Route]:
    """The routes below /v1."""
    desk = Desk(mesh, keys, state)
    routes = [
        Route(PREFIX + each.path, _Posted(desk, each), methods=["POST"], name=each.path) for each in ENDPOINTS
    ]
    routes.append(Route(PREFIX + MODELS, _Asked(desk, MODELS, _models), methods=["GET"], name=MODELS))
    one = MODELS + "/{model:path}"
    routes.append(Route(PREFIX + one, _Asked(desk, one, _model), methods=["GET"], name=one))
    known = {each.path: "POST" for each in ENDPOINTS} | {MODELS: "GET"}
    routes.append(Route(PREFIX + "/{rest:path}", _Unknown(known), methods=METHODS, name=PREFIX))
    return routes


class Desk:
    """What all of them share: who may, how many, what they used."""

    def __init__(self, mesh: Mesh, keys: ApiKeys, state: GatewayState) -> None:
        self.mesh, self._keys, self._state = mesh, keys, state
        self._limits = state.settings.limits
        self._tokens = Counter(
            "bakemesh_axon_openai_tokens",
            "Tokens of OpenAI-style requests, read and made, by who asked.",
            ("who", "direction"),
            registry=state.metrics.registry,
        )

    def enter(self, request: Request) -> str:
        """Counts a request that may begin, and gives as whom; `leave` follows. Raises Refused."""
        ip = request.client.host if request.client else ""
        if self._state.denied.address(ip):
            raise Refused(HTTPStatus.FORBIDDEN, "Forbidden.", code="forbidden")
        who = self._keys.who(request.headers.get("authorization"), ip)
        if who is None:
            told = (
                "give a key of this gateway: `Authorization: Bearer bm-…`; `bakemesh axon-key new` makes one"
            )
            raise Refused(HTTPStatus.UNAUTHORIZED, told, code="invalid_api_key")
        busy = self._state.clients.enter(who, asyncio.get_running_loop().time())
        if busy is not None:
            told = "this key has more requests than it may have, at once or a second; try again later"
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                told,
                code="rate_limit_exceeded",
                retry_after_s=busy.retry_after_s,
            )
        return who

    def leave(self, who: str, used: Usage) -> None:
        """It is over."""
        self._state.clients.leave(who)
        name = who if who.startswith(KEY) else OPEN  # an address is what a client makes up
        for direction, tokens in (("read", used.prompt), ("made", used.generated)):
            if tokens:
                self._tokens.labels(name, direction).inc(tokens)

    def asking(self, request: Request) -> Asking:
        """Its time begins now."""
        deadline = asyncio.get_running_loop().time() + self._limits.request_s
        return Asking(deadline, traceparent=traceparent_of(request.headers.get("traceparent")))

    async def body(self, request: Request) -> bytes:
        """Raises Refused, ClientGone."""
        announced = request.headers.get("content-length")
        try:
            return await exchange.whole(request.receive, self._limits.body_bytes, announced)
        except refused.Refused as error:
            raise Refused(HTTP_STATUS[error.verdict], error.reason, code=str(error.verdict)) from None

    def ended(self, route: str, status: int, seconds: float) -> None:
        """An answer is out."""
        self._state.metrics.ended(PREFIX + route, VERDICTS.get(status, Verdict.FAILED), PROFILE, seconds)


class _Answering(ABC):
    """An ASGI application that answers with what `_answer` gives, or with why not."""

    def __init__(self, desk: Desk, name: str) -> None:
        self._desk, self._name = desk, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        began = asyncio.get_running_loop().time()
        asking = self._desk.asking(request)
        who: str | None = None
        try:
            try:
                who = self._desk.enter(request)
                response = await self._answer(request, asking)
            except refused.ClientGone:
                return
            except Exception as error:  # noqa: BLE001 - the border: every error ends as an error object
                response = self._told(error)
            await response(scope, receive, send)
            self._desk.ended(self._name, response.status_code, asyncio.get_running_loop().time() - began)
        finally:
            if who is not None:
                self._desk.leave(who, asking.usage)

    @abstractmethod
    async def _answer(self, request: Request, asking: Asking) -> Response: ...

    def _told(self, error: Exception) -> Response:
        if isinstance(error, InferenceError | BusError):
            failure = failure_of(error)
            log.info("%s%s: %s: %s", PREFIX, self._name, failure.code, failure.inside)
            error = of_failure(failure)
        if isinstance(error, Refused):
            return error.response()
        log.error("%s%s failed", PREFIX, self._name, exc_info=error)
        told = "the gateway failed at this request; it is in its log"
        return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, told, code="internal_error").response()


class _Posted(_Answering):
    """One of ENDPOINTS."""

    def __init__(self, desk: Desk, endpoint: Endpoint) -> None:
        super().__init__(desk, endpoint.path)
        self._endpoint = endpoint

    async def _answer(self, request: Request, asking: Asking) -> Response:
        kind = self._endpoint.body
        try:
            body: Any = kind.model_validate_json(await self._desk.body(request))
        except ValidationError as error:
            raise of_validation(error, kind) from None
        try:
            made = await self._endpoint.work(self._desk.mesh, body, asking)
        except ModelUnknown:
            if body.model is None:
                raise
            raise no_model(body.model) from None
        return made if isinstance(made, Response) else Response(made, media_type=JSON)


class _Asked(_Answering):
    """A GET about models."""

    def __init__(self, desk: Desk, name: str, find: Find) -> None:
        super().__init__(desk, name)
        self._find = find

    async def _answer(self, request: Request, asking: Asking) -> Response:
        found = await self._find(self._desk.mesh, request, asking)
        return Response(answers.as_json(found), media_type=JSON)


async def _models(mesh: Mesh, request: Request, asking: Asking) -> answers.Answer:
    del request
    return answers.ModelList(data=await whole.models(mesh, asking.deadline))


async def _model(mesh: Mesh, request: Request, asking: Asking) -> answers.Answer:
    return await whole.model(mesh, request.path_params["model"], asking.deadline)


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
