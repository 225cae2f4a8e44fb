"""Errors in OpenAI's form: `{"error": {message, type, param, code}}`, and the status of each.

Guarantees: a message names the field and what would be right; it never quotes what a client sent. A
Retry-After stands where trying again can help.
"""

from __future__ import annotations

import math
from http import HTTPStatus

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.responses import Response

from bakemesh.axon.failures import Failure
from bakemesh.axon.openai.answers import ErrorBody, ErrorDetail, as_json
from bakemesh.axon.openai.requests import Body

INVALID, SERVER, LIMITED = "invalid_request_error", "server_error", "rate_limit_error"
JSON = "application/json"
# Steps of pydantic into a union, which are no field, as `list[constrained-str]` is none.
_TYPES = frozenset({"str", "int", "list", "text", "json_object", "json_schema"})


class Refused(Exception):
    """Raised when a request ends with an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.retry_after_s = status, code, param, retry_after_s

    @property
    def body(self) -> ErrorBody:
        """As a client gets it."""
        kind = SERVER if self.status >= 500 else LIMITED if self.status == 429 else INVALID
        return ErrorBody(error=ErrorDetail(message=str(self), type=kind, param=self.param, code=self.code))

    def response(self) -> Response:
        """As HTTP."""
        headers: dict[str, str] = {}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after_s)))
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["www-authenticate"] = "Bearer"
        return Response(as_json(self.body), self.status, headers, JSON)


def of_failure(failure: Failure) -> Refused:
    """What the mesh could not do."""
    return Refused(failure.status, failure.message, code=failure.code, retry_after_s=failure.retry_after_s)


def no_model(model: str) -> Refused:
    """No alias of the mesh."""
    told = f"the mesh has no model {model[:80]!r}; GET /v1/models lists those it has"
    return Refused(HTTPStatus.NOT_FOUND, told, code="model_not_found", param="model")


def of_validation(error: ValidationError, kind: type[Body]) -> Refused:
    """What is wrong with a body: of all that pydantic tells, what lies deepest, for a union says a line for
    each of its types.
    """
    found = max(
        error.errors(include_url=False, include_input=False, include_context=False),
        key=lambda each: len(each["loc"]),
    )
    param = _param(found)
    if param is None:
        return Refused(HTTPStatus.BAD_REQUEST, f"the body: {found['msg']}", code="invalid_json")
    if param.partition(".")[0] in kind.FIXED:
        told = f"{param}: {found['msg']}; the mesh does not support another value here, leave it out"
        return Refused(HTTPStatus.BAD_REQUEST, told, code="unsupported_parameter", param=param)
    missing = found["type"] == "missing"
    code = "missing_required_parameter" if missing else "invalid_value"
    told = f"{param} is missing" if missing else f"{param}: {found['msg']}"
    return Refused(HTTPStatus.BAD_REQUEST, told, code=code, param=param)


def _param(found: ErrorDetails) -> str | None:
    """`messages.0.content`: fields and numbers, without the types that a union tried."""
    head, *rest = found["loc"] or (None,)
    if head is None:
        return None
    steps = [each for each in rest if isinstance(each, int) or (each.isidentifier() and each not in _TYPES)]
    return ".".join(str(each)[:40] for each in (head, *steps))
