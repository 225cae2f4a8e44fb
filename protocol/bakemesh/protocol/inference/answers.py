"""What a synapse module answers. Each carries `request`, the envelope id of what it answers.

A request ends with exactly one final answer: the Vectors with `final`, Scores, Text, Models, …, or Error.
Before it may come: Vectors without `final`, Token, Progress, Alive.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from bakemesh.protocol.builder.messages import Count, TextMap
from bakemesh.protocol.inference.errors import ErrorObject
from bakemesh.protocol.inference.requests import RequestId
from bakemesh.protocol.message import Flag, Message, Payload, registered
from bakemesh.protocol.subjects import SYNAPSE, SYNAPSE_STATUS

Maps = Annotated[list[TextMap], Field(fail_fast=True)]
Share = Annotated[float, Field(ge=0)]


class Answer(Message):
    """Base of the answers."""

    request: RequestId


class ErrorAnswer(Answer):
    """Base of the errors of both protocols, of modules and of lanes: an ErrorObject as entries."""

    code: str
    error_class: str = Field(alias="class")
    safe_to_retry_same_request: Flag
    message: str
    retry_after_ms: Count | None = None
    details: TextMap | None = None

    @classmethod
    def of(cls, request: bytes, error: ErrorObject) -> Self:
        """The message that says it."""
        return cls(
            request=request,
            code=error.code,
            error_class=error.kind,
            safe_to_retry_same_request=error.safe_to_retry,
            message=error.message,
            retry_after_ms=error.retry_after_ms,
            details=error.details or None,
        )

    def value(self) -> ErrorObject:
        """What it says."""
        return ErrorObject(
            code=self.code,
            message=self.message,
            kind=self.error_class,
            safe_to_retry=self.safe_to_retry_same_request,
            retry_after_ms=self.retry_after_ms,
            details=dict(self.details or {}),
        )


@registered
class Vectors(Answer):
    """Rows `first` … `first + n - 1` of the request's items: n × dims f32. `ntokens`: of these items."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Vectors"
    first: Count
    n: Count
    dims: Count
    data: Payload
    final: Flag
    ntokens: Count = 0


@registered
class Scores(Answer):
    """One raw logit (f32) a document, in the documents' order."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Scores"
    n: Count
    data: Payload
    ntokens: Count = 0


@registered
class Token(Answer):
    """A piece of a stream, `index` from 0 without a gap; whole characters."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Token"
    index: Count
    text: str


@registered
class Alive(Answer):
    """A stream that has nothing to say yet: sent at least once a second, so that a caller that is gone is
    noticed. `state`: queued, loading, running."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Alive"
    state: str


@registered
class Text(Answer):
    """The end of a generation, with its whole text. `ngen` does not count the end token."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Text"
    text: str
    finishreason: str
    nprompt: Count
    ngen: Count


@registered
class ModelList(Answer):
    """The node's models: maps of alias, digest, kind (embed, rerank, generate), dims, context, state, …"""

    TYPE: ClassVar[str] = f"{SYNAPSE}.ModelList"
    models: Maps


@registered
class HealthStamp(Answer):
    """The node's state, with the age of each stamp in ms."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.HealthStamp"
    state: Literal["ok", "degraded", "down", "draining"]
    queued: Count
    bytesinflight: Count
    lanes: Maps
    models: Maps
    problem: str | None = None


@registered
class Probed(Answer):
    """What the probe found: `ok`, `quarantined`."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Probed"
    state: str


@registered
class Progress(Answer):
    """An ingest goes on: `done` of `total` bytes in `stage` (hash, copy, read, convert)."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Progress"
    stage: str
    done: Count
    total: Count


@registered
class Ingested(Answer):
    """The model is in the cache, under its alias."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Ingested"
    digest: str
    alias: str
    manifest: TextMap


@registered
class Chunk(Answer):
    """Bytes of an artifact. `total`: the size of the whole file."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Chunk"
    offset: Count
    data: Payload
    total: Count


@registered
class Error(ErrorAnswer):
    """There is no result; see `errors`."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Error"


@registered
class SynapseStatus(Message):
    """Module → everybody, on change and every 2 s, on core: by it callers choose a node.

    `waitms`: how long new interactive work would wait to begin; `rate`: tokens a second that its lanes do;
    `backlog`: tokens that wait or run. `lanes`, `busy`: how many are up, how many of these work. `models`:
    the aliases; `loaded`: those in memory. `serial` rises with each of them within one run of the module.
    """

    TYPE: ClassVar[str] = SYNAPSE_STATUS
    node: str = Field(alias="Node")
    node_id: str = Field(alias="NodeID")
    run: str  # another one: the module was started anew
    serial: Count
    state: str
    waitms: Count
    rate: Share
    backlog: Count
    queued: Count
    bytesinflight: Count
    lanes: Count
    busy: Count
    models: Annotated[list[str], Field(fail_fast=True)]
    loaded: Annotated[list[str], Field(fail_fast=True)]
    version: str
