"""A PsySpec that comes in a message: judged, journaled, answered; what it does is told as Reconciled.

Codes, first that applies: malformed_message, unauthorised, too_large, invalid_psyspec. Allowed: the names in
`operators`; on a mesh without authentication everybody.
"""

from __future__ import annotations

import asyncio
import logging

from bakemesh.bus import Bus
from bakemesh.protocol.admit import Delivery, Refusal
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import PROBLEMS, Result, clip
from bakemesh.protocol.builder.spec.problems import Problem
from bakemesh.protocol.psyspec import PsySpecRefused
from bakemesh.protocol.startup import PsySpecMessage
from bakemesh.startup.desk import Desk
from bakemesh.startup.plan import read_plan
from bakemesh.startup.settings import StartupSettings

log = logging.getLogger(__name__)
VERB = "PsySpec"


class Answering:
    """Answers PsySpecs."""

    def __init__(self, bus: Bus, settings: StartupSettings, desk: Desk) -> None:
        self.bus, self.settings, self.desk = bus, settings, desk

    async def answer(self, delivery: Delivery) -> Result:
        """The Result; where it is accepted the PsySpec is journaled."""
        message, issuer = delivery.received.message, delivery.subject.party
        assert isinstance(message, PsySpecMessage)
        if delivery.subject.node_id != self.settings.node_id:
            return self._refused(
                Code.MALFORMED_MESSAGE,
                f"the subject is node {delivery.subject.node_id}'s; this is {self.settings.node_id}",
            )
        if issuer != message.issuedby:
            return self._refused(
                Code.UNAUTHORISED, f"sent by {issuer}, but issuedby says {message.issuedby:.32}"
            )
        if self.bus.auth_required and issuer not in self.settings.operators:
            return self._refused(Code.UNAUTHORISED, f"{issuer} is no operator of this node (--operator)")
        settings = self.settings
        try:
            plan = await asyncio.to_thread(
                read_plan, message.psyspec, settings.node, settings.node_id, file="psyspec"
            )
        except PsySpecRefused as error:
            return self._refused(Code(error.code), f"{len(error.problems)} problems", list(error.problems))
        await self.desk.give(plan)
        log.info("PsySpec %s (%s) given by %s", plan.psyspec.name, plan.psyspec.digest, issuer)
        nodes = ", ".join(group.node for group in plan.groups) or "no node"
        return self._result(
            True, Code.OK, f"PsySpec {plan.psyspec.name} ({plan.psyspec.digest}) counts from now on: {nodes}"
        )

    def refused(self, refusal: Refusal) -> Result:
        """The Result of a message that does not decode."""
        return self._refused(Code.MALFORMED_MESSAGE, refusal.detail)

    def _refused(self, code: Code, summary: str, problems: list[Problem] | None = None) -> Result:
        log.info("PsySpec refused: %s: %s", code, summary)
        told: list[dict[str, object]] = [dict(each.entry()) for each in (problems or [])[:PROBLEMS]]
        return self._result(False, code, summary, told or None)

    def _result(
        self, accepted: bool, code: Code, summary: str, problems: list[dict[str, object]] | None = None
    ) -> Result:
        return Result(
            node=self.settings.node,
            node_id=self.settings.node_id,
            verb=VERB,
            accepted=accepted,
            code=str(code),
            summary=clip(summary),
            problems=problems,
        )
