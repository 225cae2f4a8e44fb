"""Controls: requests, answered at once with a typed Result.

Codes, first that applies: malformed_message, malformed_verb, unknown_recipe, unauthorised, stale_ctrlseq,
terminal, held, no_step, not_retryable, rate_limited. A rejected control uses nothing up and is never put on
Status: a stranger must not be able to fill the owner's stream. It is logged.
"""

from __future__ import annotations

import logging
from typing import Any

from bakemesh.builder.answers import known
from bakemesh.builder.bake import core
from bakemesh.builder.bake.session import Session, refuse_stale
from bakemesh.builder.bake.state import Control, Refused
from bakemesh.builder.clock import Clock
from bakemesh.builder.kitchen import Kitchen
from bakemesh.builder.rates import Buckets, Rate
from bakemesh.builder.results import limited
from bakemesh.protocol.admit import Delivery, Refusal
from bakemesh.protocol.builder.codes import Code, Verb
from bakemesh.protocol.builder.messages import BakeControl, Result, clip
from bakemesh.protocol.subjects import Subject

log = logging.getLogger(__name__)
LOGGED = Rate(10.0, 100.0)  # lines on refused controls from one party: a flood must not fill the disk


class Controls:
    """Answers the controls of one Builder."""

    def __init__(self, kitchen: Kitchen, operators: frozenset[str], buckets: Buckets, clock: Clock) -> None:
        self.kitchen, self.operators, self.buckets, self.clock = kitchen, operators, buckets, clock
        self._lines = Buckets(LOGGED)
        self._unsaid = 0

    async def answer(self, delivery: Delivery) -> Result:
        """The Result of one control; an accepted one is journaled when this returns."""
        message = delivery.received.message
        verb = delivery.subject.type.rpartition(".")[2]
        assert isinstance(message, BakeControl)
        try:
            session, control = self._check(delivery, message, verb)
            await session.apply(control)
        except Refused as refused:
            self._note(delivery.subject, verb, refused.code, refused.summary)
            return self._result(message, verb, refused)
        return Result(
            **session.identity.fields(),
            verb=verb,
            accepted=True,
            code=str(Code.OK),
            summary="accepted",
            ctrlseq=message.ctrlseq,
        )

    def refused(self, refusal: Refusal) -> Result:
        """The Result of a control that does not decode: what it says of itself is what its subject says."""
        subject = refusal.subject
        verb = "" if subject is None else subject.type.rpartition(".")[2]
        about: dict[str, Any] = (
            {} if subject is None else self.kitchen.identity_of(subject.party, subject.key)
        )
        self._note(subject, verb, Code.MALFORMED_MESSAGE, refusal.detail)
        return Result(
            **about, verb=verb, accepted=False, code=str(Code.MALFORMED_MESSAGE), summary=clip(refusal.detail)
        )

    def _note(self, subject: Subject | None, verb: str, code: Code, why: str) -> None:
        """Logs a refusal; of a flood some, with how many were left out."""
        party, key = ("?", "?") if subject is None else (subject.party, subject.key)
        if self._lines.wait_s(party, self.clock.monotonic()):
            self._unsaid += 1
            return
        more, self._unsaid = self._unsaid, 0
        left_out = f" ({more} more refusals before it were not logged)" if more else ""
        log.info("control %.64s of %s on %s refused: %s: %s%s", verb, party, key, code, why, left_out)

    def _result(self, message: BakeControl, verb: str, refused: Refused) -> Result:
        return Result(
            **known(message.identity),
            verb=verb,
            accepted=False,
            code=str(refused.code),
            summary=clip(refused.summary),
            ctrlseq=message.ctrlseq,
            retryms=refused.retry_ms,
        )

    def _check(self, delivery: Delivery, message: BakeControl, verb: str) -> tuple[Session, Control]:
        """Session and control. Raises Refused."""
        subject = delivery.subject
        if message.recipe_id != subject.key:
            raise Refused(
                Code.MALFORMED_MESSAGE,
                f"RecipeID {message.recipe_id:.128} is not the subject's key {subject.key}",
            )
        try:
            known_verb = Verb(verb)
        except ValueError:
            verbs = ", ".join(Verb)
            raise Refused(Code.MALFORMED_VERB, f"{verb:.64} is no verb; verbs: {verbs}") from None
        found = self.kitchen.find(message.supervisor, message.recipe_id)
        if found is None:
            raise Refused(
                Code.UNKNOWN_RECIPE,
                f"no recipe {message.recipe_id:.128} of {message.supervisor:.32} came to this node",
            )
        if subject.party != message.issuedby:
            raise Refused(
                Code.UNAUTHORISED, f"sent by {subject.party}, but issuedby says {message.issuedby:.32}"
            )
        if message.issuedby != message.supervisor and message.issuedby not in self.operators:
            raise Refused(
                Code.UNAUTHORISED,
                f"{message.issuedby:.32} neither owns the bake nor is an operator of this node",
            )
        refuse_stale(found.ctrlseqs, message.issuedby, message.ctrlseq)
        if not isinstance(found, Session):
            raise Refused(Code.TERMINAL, f"the bake has ended: {found.phase}")
        control = Control(known_verb, verb, message.ctrlseq, message.issuedby)
        core.step(
            found.recipe, found.state, control
        )  # raises Refused: the codes of the bake come before the rate
        if wait := self.buckets.wait_s(message.issuedby, self.clock.monotonic()):
            raise limited(f"controls of {message.issuedby}", wait)
        return found, control
