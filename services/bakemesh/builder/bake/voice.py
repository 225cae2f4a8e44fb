"""Puts a bake's effects into sealed messages: (subject, Nats-Msg-Id, payload). The party is the Supervisor's
name.

A Status never carries payload: its texts are the Builder's own, cut to 512 bytes here once for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from bakemesh.builder.bake.state import Say, SayEnd, SayOutcome
from bakemesh.protocol.builder.lifecycle import Phase
from bakemesh.protocol.builder.messages import (
    BakeCancelled,
    BakeData,
    BakeFailed,
    BakePaused,
    BakeRestarted,
    BakeStatus,
    BakeSuccess,
    clip,
)
from bakemesh.protocol.identity import Identity
from bakemesh.protocol.message import Message

Sealed = tuple[str, str, bytes]
_ENDS = {
    Phase.SUCCEEDED: (BakeSuccess, "success"),
    Phase.FAILED: (BakeFailed, "failed"),
    Phase.CANCELLED: (BakeCancelled, "cancelled"),
}


class Sealer(Protocol):
    """Stamps a message: `Bus.seal`."""

    def __call__(self, message: Message) -> Any:
        """Returns something with `payload` and `msg_id`."""


@dataclass(frozen=True, slots=True)
class Voice:
    """How this Builder speaks on the bus."""

    mesh: str
    node_id: str
    seal: Sealer

    def _sealed(self, identity: Identity, message: Message) -> Sealed:
        sealed = self.seal(message)
        subject = f"{self.mesh}.{self.node_id}.{identity.supervisor}.{identity.recipe_id}.{message.TYPE}"
        return subject, sealed.msg_id, sealed.payload

    def data_subject(self, identity: Identity) -> str:
        """Where a bake's Data goes."""
        return f"{self.mesh}.{self.node_id}.{identity.supervisor}.{identity.recipe_id}.{BakeData.TYPE}"

    def status(self, identity: Identity, said: Say | SayOutcome | SayEnd, *, serial: int, pct: int) -> Sealed:
        """A Status or an outcome."""
        who = identity.fields()
        message: BakeStatus
        match said:
            case Say():
                message = BakeStatus(
                    **who, kind=said.kind, serial=serial, pct=pct, summary=clip(said.summary), **said.fields
                )
            case SayOutcome():
                rests = said.phase is Phase.PAUSED
                message = (BakePaused if rests else BakeRestarted)(
                    **who,
                    kind="outcome",
                    serial=serial,
                    pct=pct,
                    summary=clip(said.summary),
                    outcome="paused" if rests else "restarted",
                    code=said.code,
                    stepindex=said.stepindex,
                )
            case SayEnd(ending=ending):
                cls, outcome = _ENDS[ending.phase]
                message = cls(
                    **who,
                    kind="outcome",
                    serial=serial,
                    pct=pct,
                    summary=clip(ending.summary),
                    final=True,
                    outcome=outcome,
                    code=ending.code,
                    stepindex=ending.stepindex,
                    lastseq=said.lastseq,
                    failedsteps=list(said.failedsteps) if ending.phase is Phase.SUCCEEDED else None,
                )
        return self._sealed(identity, message)

    def data(self, identity: Identity, **fields: Any) -> Sealed:
        """A chunk of output."""
        return self._sealed(identity, BakeData(**identity.fields(), **fields))
