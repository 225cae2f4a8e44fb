"""What is asked of a synapse module: `Psyclone.Synapse.<Verb>` on `<mesh>.<NodeID>.<caller>.<alias>.…`.

The key of the subject is the model's alias (`-` where none is meant), its party the caller. Answers go to the
reply subject and carry the request's envelope id as `request`; their envelope's `from` names the node.
Tensors: `data`, bin, little-endian, beside their shape. Source: protocol/inference-v1.md.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bakemesh.protocol.builder.messages import Count, Ordinal, TextMap
from bakemesh.protocol.envelope import ID_BYTES
from bakemesh.protocol.message import Flag, Message, Payload, registered
from bakemesh.protocol.subjects import SYNAPSE

MAX_ITEMS = 65_536  # texts, documents or counts of one request
MAX_STOPS = 16
STOP_CHARACTERS = 128
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100

RequestId = Annotated[bytes, Field(min_length=ID_BYTES, max_length=ID_BYTES)]
Texts = Annotated[list[str], Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)]
Counts = Annotated[list[Ordinal], Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)]
Stops = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=STOP_CHARACTERS)]],
    Field(max_length=MAX_STOPS, fail_fast=True),
]
Turns = Annotated[list[TextMap], Field(min_length=1, max_length=4096, fail_fast=True)]
Pooling = Literal["mean", "cls", "last"]
WorkClass = Literal["interactive", "bulk", "control"]


class WorkRequest(Message):
    """Base of what takes an engine's time.

    `deadlinems`: what is left of the caller's time as it is sent; absent: the module's default. `priority`:
    within a class, higher first. `attempt` 1: somebody repeated it already, and nobody else does.
    """

    deadlinems: Ordinal | None = None
    work_class: WorkClass = Field(default="interactive", alias="class")
    priority: Annotated[int, Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] = 0
    attempt: Annotated[int, Field(ge=0, le=1)] = 0


@registered
class Embed(WorkRequest):
    """Texts, or token ids (i32) with the count of each item, to vectors. Ids are used as they come: special
    tokens are in them. `truncate`: an item that is too long is cut, not refused."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Embed"
    texts: Texts | None = None
    data: Payload | None = None
    counts: Counts | None = None
    pooling: Pooling | None = None
    normalize: Flag = True
    truncate: Flag = False


@registered
class Rerank(WorkRequest):
    """A score for each document against the query."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Rerank"
    query: str
    documents: Texts
    truncate: Flag = False


@registered
class Generate(WorkRequest):
    """A text that goes on from `prompt` (as it is), `messages` (turns of `{role, content}`, rendered with the
    model's template) or `data` (ids, i32): one of them.

    Without `temperature` it is greedy. `stream`: Token messages before the Text.
    """

    TYPE: ClassVar[str] = f"{SYNAPSE}.Generate"
    prompt: str | None = None
    messages: Turns | None = None
    data: Payload | None = None
    maxtokens: Ordinal = 128
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    topk: Count | None = None
    topp: Annotated[float, Field(ge=0, le=1)] | None = None
    minp: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] | None = None
    stop: Stops | None = None
    grammar: str | None = None  # GBNF
    jsonschema: str | None = None
    stream: Flag = False


@registered
class Cancel(Message):
    """The caller of `request` wants it no more. No answer: the request itself ends."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Cancel"
    request: RequestId


@registered
class Models(Message):
    """What models are here?"""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Models"


@registered
class Health(Message):
    """How is the node? Answered from stamps, never by asking a worker."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Health"


@registered
class Probe(Message):
    """Try the quarantined model of the key now. `config`: the runtime keys, where not the alias's own."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Probe"
    config: TextMap | None = None


@registered
class Ingest(Message):
    """Take a file or folder of the node's own disk into its cache, under the alias of the key.

    `weights`: "fastest" makes the type of weights that this CPU runs fastest, "asis" (default) keeps the
    file's. `config`: runtime keys for the alias.
    """

    TYPE: ClassVar[str] = f"{SYNAPSE}.Ingest"
    path: Annotated[str, Field(min_length=1, max_length=4096)]
    weights: Literal["asis", "fastest"] = "asis"
    config: TextMap | None = None


@registered
class Artifact(Message):
    """A piece of a cached file, for a lane host that lacks it: `length` bytes from `offset`."""

    TYPE: ClassVar[str] = f"{SYNAPSE}.Artifact"
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    offset: Count
    length: Ordinal
