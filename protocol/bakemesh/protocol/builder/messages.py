"""The messages of the Builder & Supervisor protocol: one class a type, fields named after the seed's entries.

Left out of an encoded message: what is None. Source: seed 001, "Message types"; protocol/builder-v1.md.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from bakemesh.protocol.identity import IdentityMessage
from bakemesh.protocol.message import Flag, Message, Payload, family, registered
from bakemesh.protocol.subjects import BAKE, BAKE_DATA_PUSH, CONTROL, RECIPE, RESULT, SYSTEM_STATUS

Kind = Literal["start", "step", "interim", "ack", "outcome"]


@registered
class RecipeMessage(IdentityMessage):
    """Supervisor → Builder: bake this. `recipe_spec` is the XML; `expires` µs since the epoch."""

    TYPE: ClassVar[str] = RECIPE
    recipe_spec: str = Field(alias="RecipeSpec")
    params: dict[str, Any] | None = None
    expires: int | None = None
    parent: str | None = None  # a child recipe: its parent's RecipeID and Supervisor
    parent_supervisor: str | None = Field(default=None, alias="parentsupervisor")


@registered
class BakeDataPush(IdentityMessage):
    """Supervisor → Builder: (a part of) the answer to a `<requestdata>` step, `part` from 1."""

    TYPE: ClassVar[str] = BAKE_DATA_PUSH
    request: str
    data: Payload
    part: int = 1
    lastpart: Flag = True


@family(f"{CONTROL}.")
class BakeControl(IdentityMessage):
    """Supervisor → Builder: a control; the verb is the type's suffix. This class stands for unknown verbs too."""

    ctrlseq: int
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

    `serial` counts Status and outcome messages of a bake together from 1. The step fields are there where `kind`
    is step; `verb`, `ctrlseq`, `issuedby` where it is ack; `request` where a `<requestdata>` step waits.
    """

    TYPE: ClassVar[str] = f"{BAKE}.Status"
    kind: Kind
    serial: int
    pct: int
    summary: str
    final: Flag = False
    outcome: str | None = None
    stepindex: int | None = None
    step: str | None = None
    attempt: int | None = None
    exitcode: int | None = None
    lastseq: int | None = None
    verb: str | None = None
    ctrlseq: int | None = None
    issuedby: str | None = None
    request: str | None = None


class BakeOutcome(BakeStatus):
    """Base of the five types that are themselves the outcome; `kind` is outcome, `final` 1 on the terminal."""

    TYPE: ClassVar[str] = ""
    code: str | None = None
    failedsteps: list[int] | None = None


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
    """Builder → Supervisor: a chunk of a step's output, untouched; `seq` from 1 without a gap over the bake."""

    TYPE: ClassVar[str] = f"{BAKE}.Data"
    seq: int
    stepindex: int
    attempt: int
    stream: str
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
    ctrlseq: int | None = None
    problems: list[dict[str, Any]] | None = None
    retryms: int | None = None  # rate_limited: try again after so many ms


@registered
class SystemStatus(Message):
    """A node's state, published on change and every 5 s; the last one is kept in the nodes bucket."""

    TYPE: ClassVar[str] = SYSTEM_STATUS
    node: str = Field(alias="Node")
    node_id: str = Field(alias="NodeID")
    boot: str
    bakes: int
    queued: int
    load: float
    draining: Flag
    configcomplete: Flag
    version: str
    protocols: list[str]
    stepkinds: list[str]
    components: list[dict[str, Any]]
    leaf: Flag = False
    storefull: Flag = False


OUTCOME_TYPES: dict[str, type[BakeOutcome]] = {
    cls.TYPE: cls for cls in (BakeSuccess, BakeFailed, BakePaused, BakeCancelled, BakeRestarted)
}
TERMINAL_TYPES = frozenset({BakeSuccess.TYPE, BakeFailed.TYPE, BakeCancelled.TYPE})
