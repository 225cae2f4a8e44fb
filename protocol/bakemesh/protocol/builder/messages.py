"""The messages of the Builder & Supervisor protocol: one class a type, fields named after the entries.

Left out of an encoded message: what is None. Ranges are checked here, so that a value out of range is refused
where it is made and where it is read. Source: protocol/builder-v1.md, "Messages".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from bakemesh.protocol import envelope
from bakemesh.protocol.envelope import LARGEST
from bakemesh.protocol.identity import ENTRIES, IdentityMessage
from bakemesh.protocol.message import Flag, Message, Payload, family, registered
from bakemesh.protocol.subjects import (
    BAKE,
    BAKE_DATA_PUSH,
    COHORT_MESSAGE,
    CONTROL,
    PERFORMANCE,
    RECIPE,
    RESULT,
    SYSTEM_STATUS,
)

SUMMARY_BYTES = 512
PROBLEMS = 100

# What a Builder of today sends as `kind`; a reader takes another one as it takes interim.
Kind = Literal["start", "step", "interim", "ack", "outcome"]


def clip(text: str, limit: int = SUMMARY_BYTES) -> str:
    """`text` cut to `limit` bytes of UTF-8 between two characters; a cut one ends in '…'."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode()
    return raw[: limit - 3].decode("utf-8", "ignore") + "…"


def _fits(summary: str) -> str:
    if len(summary) > SUMMARY_BYTES // 4 and len(summary.encode("utf-8", "replace")) > SUMMARY_BYTES:
        raise PydanticCustomError(
            "too_long", "must be at most {limit} bytes of UTF-8", {"limit": SUMMARY_BYTES}
        )
    return summary


def _text_keys(value: dict[Any, Any]) -> dict[Any, Any]:
    # One error for the first bad key: pydantic's own dict[str, …] would make one for each of them.
    for key in value:
        if type(key) is not str:
            raise PydanticCustomError(
                "key", "keys must be text, not {kind}", {"kind": key.__class__.__name__}
            )
    return value


Summary = Annotated[str, AfterValidator(_fits)]
TextMap = Annotated[dict[Any, Any], AfterValidator(_text_keys)]
# Numbers fit into a signed 64-bit integer: a reader in any language, and any store, can hold them.
Count = Annotated[int, Field(ge=0, le=LARGEST)]  # from 0
Ordinal = Annotated[int, Field(ge=1, le=LARGEST)]  # from 1


@registered
class RecipeMessage(IdentityMessage):
    """Supervisor → Builder: bake this. `recipe_spec` is the XML; `expires` µs since the epoch."""

    TYPE: ClassVar[str] = RECIPE
    recipe_spec: str = Field(alias="RecipeSpec")
    params: TextMap | None = None
    expires: Count | None = None
    parent: str | None = None  # a child recipe: its parent's RecipeID and Supervisor
    parent_supervisor: str | None = Field(default=None, alias="parentsupervisor")

    @classmethod
    def from_entries(cls, entries: Mapping[Any, Any], type: str | None = None) -> Self:  # noqa: A002
        """As Message, but an identity entry that is missing reads as "".

        It is then refused as wrong_identity, which a Supervisor gets to see, and not as a malformed message.
        """
        folded = envelope.fold(entries, type=type or cls.TYPE)
        absent = {entry: "" for entry in ENTRIES if entry.lower() not in folded}
        return super().from_entries({**entries, **absent}, type)


@registered
class BakeDataPush(IdentityMessage):
    """Supervisor → Builder: (a part of) the answer to a `<requestdata>` step, `part` from 1."""

    TYPE: ClassVar[str] = BAKE_DATA_PUSH
    request: str
    data: Payload
    part: Ordinal = 1
    lastpart: Flag = True


@family(f"{CONTROL}.")
class BakeControl(IdentityMessage):
    """Supervisor → Builder: a control; the verb is the type's suffix. Stands for unknown verbs too."""

    ctrlseq: Count
    issuedby: str


@registered
class Pause(BakeControl):
    """Hold at the next step boundary."""

    TYPE: ClassVar[str] = f"{CONTROL}.Pause"


@registered
class Start(BakeControl):
    """Resume; withdraws a pending Pause."""

    TYPE: ClassVar[str] = f"{CONTROL}.Start"


@registered
class Cancel(BakeControl):
    """End the bake at once, killing a running step."""

    TYPE: ClassVar[str] = f"{CONTROL}.Cancel"


@registered
class Terminate(BakeControl):
    """Cancel by its other name."""

    TYPE: ClassVar[str] = f"{CONTROL}.Terminate"


@registered
class SkipStep(BakeControl):
    """Skip the cursor's step, killing it where it runs."""

    TYPE: ClassVar[str] = f"{CONTROL}.SkipStep"


@registered
class RetryStep(BakeControl):
    """Run the cursor's step again; it must be `retryable="yes"` and have begun."""

    TYPE: ClassVar[str] = f"{CONTROL}.RetryStep"


@registered
class BakeStatus(IdentityMessage):
    """Builder → Supervisor: progress, never payload. `pct` 0–100, -1 = not applicable.

    `serial` counts Status and outcome messages of a bake together from 1. The step fields are there where
    `kind` is step; `verb`, `ctrlseq`, `issuedby` where it is ack; `request` where a `<requestdata>` step
    waits.
    """

    TYPE: ClassVar[str] = f"{BAKE}.Status"
    kind: Annotated[str, Field(min_length=1)]
    serial: Ordinal
    pct: Annotated[int, Field(ge=-1, le=100)]
    summary: Summary
    final: Flag = False
    outcome: str | None = None
    stepindex: Count | None = None
    step: str | None = None
    attempt: Ordinal | None = None
    exitcode: int | None = None
    lastseq: Count | None = None
    verb: str | None = None
    ctrlseq: Count | None = None
    issuedby: str | None = None
    request: str | None = None


class BakeOutcome(BakeStatus):
    """Base of the five types that are themselves the outcome; `kind` outcome, `final` 1 on the terminal."""

    TYPE: ClassVar[str] = ""
    code: str | None = None
    failedsteps: Annotated[list[Count], Field(fail_fast=True)] | None = None


@registered
class BakeSuccess(BakeOutcome):
    """Terminal: every step is done. `failedsteps` lists those that failed under on-failure="continue"."""

    TYPE: ClassVar[str] = f"{BAKE}.Success"


@registered
class BakeFailed(BakeOutcome):
    """Terminal: `code` says why, `stepindex` where."""

    TYPE: ClassVar[str] = f"{BAKE}.Failed"


@registered
class BakePaused(BakeOutcome):
    """The bake rests, at a boundary, or (`code` held) at a step that failed."""

    TYPE: ClassVar[str] = f"{BAKE}.Paused"


@registered
class BakeCancelled(BakeOutcome):
    """Terminal: a Cancel ended it."""

    TYPE: ClassVar[str] = f"{BAKE}.Cancelled"


@registered
class BakeRestarted(BakeOutcome):
    """The bake runs on after a rest."""

    TYPE: ClassVar[str] = f"{BAKE}.Restarted"


@registered
class BakeData(IdentityMessage):
    """Builder → Supervisor: a chunk of a step's output, untouched; `seq` from 1 without a gap."""

    TYPE: ClassVar[str] = f"{BAKE}.Data"
    seq: Ordinal
    stepindex: Count
    attempt: Ordinal
    stream: Annotated[str, Field(min_length=1)]
    data: Payload
    finalchunk: Flag = False
    partial: Flag = False
    aborted: Flag = False
    path: str | None = None  # output of a followed child recipe: `<parent step>/<child step>`


@registered
class Result(Message):
    """The typed answer to a Recipe, a control or a push; identity entries as far as they are known."""

    TYPE: ClassVar[str] = RESULT
    supervisor: str | None = Field(default=None, alias="Supervisor")
    recipe: str | None = Field(default=None, alias="Recipe")
    recipe_id: str | None = Field(default=None, alias="RecipeID")
    node: str | None = Field(default=None, alias="Node")
    node_id: str | None = Field(default=None, alias="NodeID")
    verb: str
    accepted: Flag
    code: str
    summary: str
    ctrlseq: Count | None = None
    problems: Annotated[list[TextMap], Field(max_length=PROBLEMS, fail_fast=True)] | None = None
    retryms: Count | None = None  # rate_limited: try again after so many ms


@registered
class SystemStatus(Message):
    """A node's state, published on change and every 5 s; the last one is kept in the nodes bucket."""

    TYPE: ClassVar[str] = SYSTEM_STATUS
    node: str = Field(alias="Node")
    node_id: str = Field(alias="NodeID")
    boot: str
    bakes: Count
    queued: Count
    load: Annotated[float, Field(ge=0)]
    draining: Flag
    configcomplete: Flag
    version: str
    protocols: Annotated[list[str], Field(fail_fast=True)]
    stepkinds: Annotated[list[str], Field(fail_fast=True)]
    components: Annotated[list[TextMap], Field(fail_fast=True)]
    leaf: Flag = False
    storefull: Flag = False


@registered
class Performance(Message):
    """A node's load, every 5 s. What the machine does not tell is left out."""

    TYPE: ClassVar[str] = PERFORMANCE
    node: str = Field(alias="Node")
    node_id: str = Field(alias="NodeID")
    cpu: float | None = None  # busy share of all cores since the last one, 0 to 1
    load: float | None = None  # one minute's load average
    memory: Count | None = None  # bytes in use
    memorytotal: Count | None = None
    disk: Count | None = None  # bytes in use on the state folder's file system
    disktotal: Count | None = None
    queues: TextMap | None = None  # depth of each queue by name
    temperature: float | None = None  # °C, the hottest sensor


@registered
class CohortMessage(Message):
    """To each member of a cohort: `verb` and `entries` for the node's cranks. The answer is a Result."""

    TYPE: ClassVar[str] = COHORT_MESSAGE
    cohort: str
    verb: str
    payload: TextMap | None = Field(default=None, alias="entries")


OUTCOME_TYPES: dict[str, type[BakeOutcome]] = {
    cls.TYPE: cls for cls in (BakeSuccess, BakeFailed, BakePaused, BakeCancelled, BakeRestarted)
}
TERMINAL_TYPES = frozenset({BakeSuccess.TYPE, BakeFailed.TYPE, BakeCancelled.TYPE})
