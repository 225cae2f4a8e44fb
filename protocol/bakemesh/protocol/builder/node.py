"""The messages of a node's own life: what its components say, and what operators ask of it.

    component ── Report, Watch ──→ its node's Builder         Builder ── Deliver ──→ component
    operator, Startup Supervisor ── ComponentControl.<Verb>, NodeControl.<Verb> ──→ Builder

All but Watch are requests; the answer is a Result. Source: protocol/builder-v1.md, "Nodes".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bakemesh.protocol.builder.messages import Count, Summary, TextMap
from bakemesh.protocol.message import Message, family, registered
from bakemesh.protocol.subjects import (
    COMPONENT_CONTROL,
    COMPONENT_DELIVER,
    COMPONENT_REPORT,
    COMPONENT_WATCH,
    NODE_CONTROL,
)

TRACEBACK_BYTES = 16 << 10
WATCH_BYTES = 256

Text = Annotated[str, Field(min_length=1, max_length=200)]


class ComponentVerb(StrEnum):
    """What may be asked of one component."""

    RESTART = "Restart"  # stop it where it runs, start it, whatever its policy; its budget is clean again
    STOP = "Stop"  # stop it; it stays known, and is not started again by its policy
    START = "Start"  # start one that was stopped, let be or quarantined
    REMOVE = "Remove"  # stop it and forget it


class NodeVerb(StrEnum):
    """What may be asked of a node."""

    DRAIN = "Drain"  # refuse new recipes, let bakes finish, then stop the components in reverse order
    RESUME = "Resume"  # take recipes again
    DOWN = "Down"  # drain, and end the node


@registered
class ComponentReport(Message):
    """Component → its Builder: it is ready, or its crank failed. `instance` is the start it was given.

    `traceback` is there where `state` is failed; its last TRACEBACK_BYTES are kept.
    """

    TYPE: ClassVar[str] = COMPONENT_REPORT
    component: Text
    instance: Text
    state: Literal["ready", "failed"]
    summary: Summary
    traceback: str | None = None


@registered
class ComponentWatch(Message):
    """Component → its Builder, and whoever listens: a live value. Core, not answered, may be lost.

    `instance`: the start it was given; one of another start than the present one is dropped.
    """

    TYPE: ClassVar[str] = COMPONENT_WATCH
    component: Text
    key: Text
    value: Annotated[str, Field(max_length=WATCH_BYTES)]
    instance: Text | None = None


@registered
class ComponentDeliver(Message):
    """Builder → component: a message that came for the node and that one of its triggers asks for."""

    TYPE: ClassVar[str] = COMPONENT_DELIVER
    component: Text
    trigger: Text
    type_: Text = Field(alias="type")  # of the message delivered
    sender: str = Field(alias="from")
    payload: TextMap = Field(alias="entries")


@family(f"{COMPONENT_CONTROL}.")
class ComponentControl(Message):
    """To a Builder: do this to one of its components. The verb is the type's suffix; the key is the name.

    `issuedby` must equal the party. Allowed: the component's owner, operators; on a mesh without
    authentication everybody.
    """

    component: Text
    issuedby: Text


@family(f"{NODE_CONTROL}.")
class NodeControl(Message):
    """To a Builder: do this to the node. `timeoutms`: bakes that run on after so long are cancelled; 0: at
    once; left out: they are waited for."""

    issuedby: Text
    timeoutms: Count | None = None


@registered
class RestartComponent(ComponentControl):
    """See ComponentVerb."""

    TYPE: ClassVar[str] = f"{COMPONENT_CONTROL}.Restart"


@registered
class StopComponent(ComponentControl):
    """See ComponentVerb."""

    TYPE: ClassVar[str] = f"{COMPONENT_CONTROL}.Stop"


@registered
class StartComponent(ComponentControl):
    """See ComponentVerb."""

    TYPE: ClassVar[str] = f"{COMPONENT_CONTROL}.Start"


@registered
class RemoveComponent(ComponentControl):
    """See ComponentVerb."""

    TYPE: ClassVar[str] = f"{COMPONENT_CONTROL}.Remove"


@registered
class DrainNode(NodeControl):
    """See NodeVerb."""

    TYPE: ClassVar[str] = f"{NODE_CONTROL}.Drain"


@registered
class ResumeNode(NodeControl):
    """See NodeVerb."""

    TYPE: ClassVar[str] = f"{NODE_CONTROL}.Resume"


@registered
class DownNode(NodeControl):
    """See NodeVerb."""

    TYPE: ClassVar[str] = f"{NODE_CONTROL}.Down"
