"""The messages of a Startup Supervisor: that its node is ready, and a changed PsySpec for it.

Source: protocol/builder-v1.md, "The Startup Supervisor".
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from bakemesh.protocol.message import Message, registered
from bakemesh.protocol.subjects import READY, STARTUP_RECONCILED, STARTUP_SPEC

Names = Annotated[list[str], Field(fail_fast=True, max_length=100_000)]


@registered
class Ready(Message):
    """The node's components exist: published once a start of the node, and noted in the nodes bucket."""

    TYPE: ClassVar[str] = READY
    node: str = Field(alias="Node")
    node_id: str = Field(alias="NodeID")
    boot: str
    psyspec: str  # its name
    digest: str
    components: Names


@registered
class PsySpecMessage(Message):
    """To a Startup Supervisor: this is the PsySpec from now on. XML, includes and scripts put in. Request;
    the answer is a Result of verb PsySpec, given once it is journaled."""

    TYPE: ClassVar[str] = STARTUP_SPEC
    psyspec: str
    issuedby: str


@registered
class Reconciled(Message):
    """A changed PsySpec was carried out on one node, by the Startup Supervisor that is the party."""

    TYPE: ClassVar[str] = STARTUP_RECONCILED
    node: str = Field(alias="Node")
    node_id: str = Field(alias="NodeID")
    digest: str
    added: Names
    removed: Names
    restarted: Names
    unchanged: int
