"""Lanes on the bus: what a module asks of a lane host, and what that says.

Subject: `<mesh>.<NodeID of the lane>.<module>.<lane>.Psyclone.Worker.<Verb>`.

The engine-worker protocol's fields (protocol/worker-v1.md), with `data` in the message. A model is named by
digest, format and config, never by a worker's reference: the lane host loads it where it is not loaded.
One request a lane at a time; an occupied lane answers `lane_busy` at once. Deadlines, kills, budgets and
quarantines are the lane host's, beside the process. Source: protocol/inference-v1.md, "Lanes".
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from bakemesh.protocol.builder.messages import Count, Ordinal, TextMap
from bakemesh.protocol.inference.answers import Answer, ErrorAnswer, Maps
from bakemesh.protocol.inference.requests import Counts, RequestId, Stops
from bakemesh.protocol.message import Flag, Message, Payload, registered
from bakemesh.protocol.subjects import WORKER, WORKER_STATUS

Digest = Annotated[str, Field(min_length=1, max_length=80)]
Words = Annotated[list[str], Field(fail_fast=True)]


class OfModel(Message):
    """Base of the requests about a model. `config`: runtime_config, text to text. `size`: bytes of the
    artifact; `artifactnode`: NodeID of the module that has it, for a host that lacks it."""

    digest: Digest
    format: str = "gguf"
    config: TextMap = Field(default_factory=dict)
    size: Count | None = None
    artifactnode: str | None = None
    deadlinems: Ordinal | None = None
    attempt: Annotated[int, Field(ge=0, le=1)] = 0


@registered
class LoadModel(OfModel):
    """Have the model in this lane."""

    TYPE: ClassVar[str] = f"{WORKER}.Load"


@registered
class EmbedBatch(OfModel):
    """Items of one or several callers in one batch: `counts` of tokens an item, `shares` of items a caller
    (absent: one caller), `data` all ids, i32."""

    TYPE: ClassVar[str] = f"{WORKER}.EmbedBatch"
    pooling: str = "mean"
    normalize: Flag = True
    counts: Counts
    shares: Counts | None = None
    data: Payload


@registered
class LaneRerank(OfModel):
    """`data`: the query's ids, then the candidates', no special tokens."""

    TYPE: ClassVar[str] = f"{WORKER}.Rerank"
    query_n_tokens: Ordinal
    counts: Counts
    data: Payload


@registered
class LaneGenerate(OfModel):
    """Greedy."""

    TYPE: ClassVar[str] = f"{WORKER}.Generate"
    max_tokens: Ordinal
    grammar: str | None = None
    data: Payload


@registered
class LaneGenerateStream(OfModel):
    """Sampled, token by token."""

    TYPE: ClassVar[str] = f"{WORKER}.GenerateStream"
    max_tokens: Ordinal
    grammar: str | None = None
    json_schema: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: Stops | None = None
    data: Payload


@registered
class LaneCancel(Message):
    """End `request`, by its envelope id. No answer of its own."""

    TYPE: ClassVar[str] = f"{WORKER}.Cancel"
    request: RequestId


@registered
class LaneModelInfo(OfModel):
    """What is the model?"""

    TYPE: ClassVar[str] = f"{WORKER}.ModelInfo"


@registered
class LaneProbe(OfModel):
    """Try it, quarantined or not."""

    TYPE: ClassVar[str] = f"{WORKER}.Probe"


@registered
class LaneUnload(OfModel):
    """Give its memory back in this lane."""

    TYPE: ClassVar[str] = f"{WORKER}.Unload"


@registered
class LanePing(Message):
    """Is the lane there? Answered from its stamp."""

    TYPE: ClassVar[str] = f"{WORKER}.Ping"


@registered
class LaneAsked(Message):
    """What is the lane?"""

    TYPE: ClassVar[str] = f"{WORKER}.Lane"


# -- answers


@registered
class LaneLoaded(Answer):
    """It is loaded. `cold_load_ms` 0: it was."""

    TYPE: ClassVar[str] = f"{WORKER}.Loaded"
    dims: Count
    cold_load_ms: Count


@registered
class LaneVectors(Answer):
    """Rows of the shares that have no error, one after the other. `failed`: maps of `share` and the entries
    of an error, for those that have one."""

    TYPE: ClassVar[str] = f"{WORKER}.Vectors"
    n: Count
    dims: Count
    data: Payload
    failed: Maps | None = None


@registered
class LaneScores(Answer):
    """One f32 a candidate."""

    TYPE: ClassVar[str] = f"{WORKER}.Scores"
    data: Payload


@registered
class LaneToken(Answer):
    """A piece of a stream."""

    TYPE: ClassVar[str] = f"{WORKER}.Token"
    index: Count
    text: str


@registered
class LaneText(Answer):
    """The end of a generation."""

    TYPE: ClassVar[str] = f"{WORKER}.Text"
    text: str
    n_prompt: Count
    n_gen: Count
    finish_reason: str


@registered
class LaneModel(Answer):
    """As MODEL."""

    TYPE: ClassVar[str] = f"{WORKER}.Model"
    architecture: str
    dims: Count
    n_vocab: Count
    n_ctx_train: Count
    pooling: str
    rank_head: Flag
    chat_template: str | None = None


@registered
class LaneProbed(Answer):
    """`state`: ok, quarantined."""

    TYPE: ClassVar[str] = f"{WORKER}.Probed"
    state: str


@registered
class LaneUnloaded(Answer):
    """It is not loaded."""

    TYPE: ClassVar[str] = f"{WORKER}.Unloaded"


@registered
class LanePong(Answer):
    """The lane's last stamp, `age_ms` old."""

    TYPE: ClassVar[str] = f"{WORKER}.Pong"
    state: str
    rss_mb: float | None = None
    models_loaded: Count | None = None
    placement_share: float | None = None
    age_ms: Count | None = None


@registered
class LaneDescribed(Answer):
    """The lane as its Status says it."""

    TYPE: ClassVar[str] = f"{WORKER}.Described"
    lane: TextMap


@registered
class LaneError(ErrorAnswer):
    """As Psyclone.Synapse.Error; `details` has stage, signal, exit_code, output of a crash."""

    TYPE: ClassVar[str] = f"{WORKER}.Error"


@registered
class LaneStatus(Message):
    """Lane host → everybody, on change and every 2 s, on core; the key is the lane, the party the host.

    `state`: starting, idle, busy, crashed, degraded, unresponsive, closed. `models`: maps of digest, format,
    config and whether it is loaded or quarantined. `crashes`: since the host started. A host that ends says
    closed.
    """

    TYPE: ClassVar[str] = WORKER_STATUS
    node: str = Field(alias="Node")
    node_id: str = Field(alias="NodeID")
    lane: str
    run: str
    serial: Count
    state: str
    degraded: Flag = False
    engine: str | None = None
    types: Words = Field(default_factory=list)
    pid: Count | None = None
    rss_mb: float | None = None
    placement_share: float | None = None
    models: Maps
    crashes: Count = 0
    busyms: Count | None = None
    problem: str | None = None
    version: str = ""
