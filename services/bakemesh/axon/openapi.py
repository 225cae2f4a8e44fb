"""/openapi.json: every route of this gateway, as OpenAPI 3.1 says it. Pure; made once, when it starts.

Bodies come from the classes that read and write them, so the document cannot tell another story. A class that
has no JSON schema (a field of a type of its own) stands there as an object. Left out: what a header must hold
to be a signature; that is protocol/axon-v1.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bakemesh.axon.openai import answers
from bakemesh.axon.openai.routes import ENDPOINTS, MODELS, PREFIX, Endpoint
from bakemesh.edge import Axon
from bakemesh.edge.axon import Route as SynapseRoute
from bakemesh.protocol.axon import keys

PATH = "/openapi.json"
Mode: TypeAlias = Literal["validation", "serialization"]
Schema: TypeAlias = dict[str, Any]
_REF = "#/components/schemas/"
_JSON, _SSE = "application/json", "text/event-stream"
_FAILURE: Schema = {
    "type": "object",
    "properties": {"message": {"type": "string"}},
    "required": ["message"],
    "title": "Failure",
}
_SYNAPSE_SAYS = {
    400: "a header or the body cannot be read, or the body is not what was signed",
    401: "not signed, or not by this hotkey, for this axon, now and for the first time",
    403: "this hotkey or address is not served",
    405: "a synapse is asked with POST",
    408: "it took longer than it may take",
    413: "the body is too large",
    422: "the body is not what the class says",
    429: "this hotkey has too much at once, or a second",
    431: "the header block is too large",
    500: "the handler failed",
    503: "the gateway, or the mesh, has too much to do",
}
_OPENAI_SAYS = {
    400: "the body cannot be read, or asks for what is not supported: `param` says which field",
    401: "no key, or none that is known",
    403: "this address is not served",
    404: "the mesh has no such model",
    405: "another method is right",
    408: "it took longer than it may take",
    413: "the body is too large",
    429: "this key has too much at once, or a second",
    431: "the header block is too large",
    500: "an engine failed at it",
    503: "the gateway, or the mesh, has too much to do",
}
_RETRIED = frozenset({429, 503})


def openapi_route(axon: Axon, *, openai: bool = True) -> Route:
    """GET /openapi.json."""
    body = json.dumps(document(axon, openai=openai), ensure_ascii=False).encode()

    async def answer(request: Request) -> Response:
        del request
        return Response(body, media_type=_JSON)

    return Route(PATH, answer, methods=["GET"])


def document(axon: Axon, *, openai: bool = True) -> Schema:
    """The whole document. `openai`: whether the routes below /v1 are served."""
    classes = _Classes()
    for route in axon.routes.values():
        classes.want(route.synapse, "validation")
        classes.want(route.synapse, "serialization")
        if isinstance(route.synapse.Output, type):
            classes.want(route.synapse.Output, "serialization")
    for endpoint in ENDPOINTS if openai else ():
        classes.want(endpoint.body, "validation")
        classes.want(endpoint.answer, "serialization")
        if endpoint.streams:
            classes.want(endpoint.streams, "serialization")
    for answer in (answers.ModelList, answers.Model, answers.ErrorBody) if openai else ():
        classes.want(answer, "serialization")
    classes.make()
    paths: Schema = {f"/{name}": _synapse(classes, route) for name, route in axon.routes.items()}
    if openai:
        paths |= {PREFIX + each.path: _endpoint(classes, each) for each in ENDPOINTS}
        paths |= _models(classes)
    paths |= _care()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bakemesh axon",
            "version": _version(),
            "description": "Signed synapses, and OpenAI-style routes, of one gateway of a bakemesh.",
        },
        "paths": paths,
        "components": {
            "schemas": classes.schemas | {"Failure": _FAILURE},
            "securitySchemes": _security(openai),
        },
    }


class _Classes:
    """Schemas of classes, with one name each."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[type[BaseModel], Mode], None] = {}
        self._found: Mapping[Any, Schema] = {}
        self.schemas: Schema = {}

    def want(self, kind: type[Any], mode: Mode) -> None:
        """It will be needed, where it has a schema at all."""
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return
        try:
            kind.model_json_schema(mode=mode)
        except (PydanticInvalidForJsonSchema, PydanticUserError):
            return
        self._wanted[kind, mode] = None

    def make(self) -> None:
        """All of them."""
        self._found, whole = models_json_schema(list(self._wanted), ref_template=_REF + "{model}")
        self.schemas = whole.get("$defs", {})

    def of(self, kind: Any, mode: Mode) -> Schema:
        """Where it stands."""
        return dict(self._found.get((kind, mode), {"type": "object"}))


def _synapse(classes: _Classes, route: SynapseRoute) -> Schema:
    kind = route.synapse
    answered = [classes.of(kind, "serialization")]
    if kind.Output is not None:
        answered.append(classes.of(kind.Output, "serialization"))
    content: Schema = {_JSON: {"schema": answered[0] if len(answered) == 1 else {"anyOf": answered}}}
    if route.streams:
        content[_SSE] = {"schema": {"type": "string"}}
    own_text = kind.__doc__ if kind.__doc__ and kind.__module__ != "pydantic.main" else None
    return {
        "post": {
            "operationId": route.name,
            "summary": (own_text or route.name).strip().partition("\n")[0],
            "tags": ["synapses"],
            "security": [{"synapse": []}, {"btauth": []}],
            "parameters": _signed(),
            "requestBody": _body(classes.of(kind, "validation"), required=not route.ignores_body),
            "responses": {"200": {"description": "answered", "content": content}}
            | _failures(_SYNAPSE_SAYS, [{"$ref": _REF + "Failure"}]),
        }
    }


def _signed() -> list[Schema]:
    whole, text = {"type": "string", "pattern": "^[0-9]{1,20}$"}, {"type": "string"}
    prefix = keys.DENDRITE_PREFIX
    rows: tuple[tuple[str, Schema, str], ...] = (
        (keys.TIMEOUT, {"type": "number", "minimum": 0}, "seconds that it may take"),
        (keys.COMPUTED_BODY_HASH, text, "the hash of the body that is signed"),
        (prefix + "hotkey", text, "who signs: an SS58 address"),
        (prefix + "nonce", whole, "when it was signed: ns or ms since the epoch"),
        (prefix + "uuid", {"type": "string", "maxLength": 64}, "of the sender"),
        (keys.AXON_PREFIX + "hotkey", text, "for whom it is signed"),
    )
    return [
        {"name": name, "in": "header", "required": False, "schema": schema, "description": says}
        for name, schema, says in rows
    ]


def _endpoint(classes: _Classes, endpoint: Endpoint) -> Schema:
    content: Schema = {_JSON: {"schema": classes.of(endpoint.answer, "serialization")}}
    if endpoint.streams is not None:
        content[_SSE] = {
            "schema": {
                "type": "string",
                "contentMediaType": _JSON,
                "contentSchema": classes.of(endpoint.streams, "serialization"),
            }
        }
    return {
        "post": {
            "operationId": endpoint.path.strip("/").replace("/", "-"),
            "summary": endpoint.says,
            "tags": ["openai"],
            "security": [{"key": []}],
            "requestBody": _body(classes.of(endpoint.body, "validation"), required=True),
            "responses": {"200": {"description": "answered", "content": content}}
            | _openai_failures(classes, _OPENAI_SAYS),
        }
    }


def _models(classes: _Classes) -> Schema:
    said = {status: text for status, text in _OPENAI_SAYS.items() if status not in (404, 413)}

    def got(kind: type[answers.Answer], name: str, says: str, told: Mapping[int, str]) -> Schema:
        content = {_JSON: {"schema": classes.of(kind, "serialization")}}
        return {
            "operationId": name,
            "summary": says,
            "tags": ["openai"],
            "security": [{"key": []}],
            "responses": {"200": {"description": "answered", "content": content}}
            | _openai_failures(classes, told),
        }

    named = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    one = got(answers.Model, "model", "One model.", said | {404: _OPENAI_SAYS[404]})
    return {
        PREFIX + MODELS: {"get": got(answers.ModelList, "models", "The models of the mesh.", said)},
        PREFIX + MODELS + "/{model}": {"get": one | {"parameters": [named]}},
    }


def _openai_failures(classes: _Classes, said: Mapping[int, str]) -> Schema:
    """What the route refuses is OpenAI's; what the gateway refuses before it, is not."""
    return _failures(said, [classes.of(answers.ErrorBody, "serialization"), {"$ref": _REF + "Failure"}])


def _failures(said: Mapping[int, str], forms: list[Schema]) -> Schema:
    schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
    retry = {"Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "seconds"}}
    return {
        str(status): {"description": text, "content": {_JSON: {"schema": schema}}}
        | ({"headers": retry} if status in _RETRIED else {})
        for status, text in said.items()
    }


def _body(schema: Schema, *, required: bool) -> Schema:
    return {"required": required, "content": {_JSON: {"schema": schema}}}


def _care() -> Schema:
    """What is asked by whoever looks after the gateway."""
    status = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}

    def got(name: str, says: str, kind: str, schema: Schema, also: Iterable[int] = ()) -> Schema:
        content = {kind: {"schema": schema}}
        codes = {str(code): {"description": says, "content": content} for code in (200, *also)}
        return {"get": {"operationId": name, "summary": says, "tags": ["care"], "responses": codes}}

    return {
        "/healthz": got("healthz", "It is alive.", _JSON, status),
        "/readyz": got(
            "readyz", "Whether it may be sent requests; 503: what is missing.", _JSON, status, (503,)
        ),
        "/metrics": got("metrics", "What it counts, for Prometheus.", "text/plain", {"type": "string"}),
        PATH: got("openapi", "This document.", _JSON, {"type": "object"}),
    }


def _security(openai: bool) -> Schema:
    signature = {
        "synapse": {
            "type": "apiKey",
            "in": "header",
            "name": keys.DENDRITE_PREFIX + "signature",
            "description": "sr25519 over `{nonce}.{dendrite_hotkey}.{axon_hotkey}.{uuid}.{body_hash}`",
        },
        "btauth": {
            "type": "apiKey",
            "in": "header",
            "name": keys.BTAUTH_SIGNATURE,
            "description": "sr25519 over the payload of btauth/1, with the other X-Bittensor-* headers",
        },
    }
    key = {"key": {"type": "http", "scheme": "bearer", "description": "`bakemesh axon-key new NAME`"}}
    return signature | (key if openai else {})


def _version() -> str:
    try:
        return version("bakemesh")
    except PackageNotFoundError:
        return "0"
