"""Saying no to a recipe: its Result, at most one Bake.Failed, and what the journal keeps of it.

Guarantees: what is told is journaled before; a refusal for the moment only (`rate_limited`) leaves no trace,
neither in the journal nor in the log. Left out: why (see `judge`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bakemesh.builder.bake.state import Ending, SayEnd, State
from bakemesh.builder.bake.voice import Voice
from bakemesh.builder.clock import Clock
from bakemesh.builder.journal.records import Db, OutRow, insert_bake, save_answer
from bakemesh.builder.judge import Refuse
from bakemesh.builder.kitchen import Kitchen
from bakemesh.bus.connection import Bus
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.lifecycle import Phase
from bakemesh.protocol.builder.messages import Result, clip
from bakemesh.protocol.envelope import Envelope

log = logging.getLogger(__name__)


class Refusing:
    """Carries refusals out."""

    def __init__(self, bus: Bus, kitchen: Kitchen, voice: Voice, clock: Clock) -> None:
        self.bus, self.kitchen, self.voice, self.clock = bus, kitchen, voice, clock

    async def refuse(
        self,
        party: str,
        key: str,
        envelope: Envelope,
        verdict: Refuse,
        also: Callable[[Db], None] | None = None,
    ) -> bytes:
        """Journals and tells it; gives the Result's payload. `party` sent it; `also` goes into the same
        transaction.
        """
        result = Result(
            **verdict.identity.fields(),
            verb="Recipe",
            accepted=False,
            code=str(verdict.code),
            summary=clip(verdict.summary),
            problems=list(verdict.problems) or None,
            retryms=verdict.retry_ms,
        )
        sealed = self.bus.seal(result)
        if verdict.code is Code.RATE_LIMITED:
            log.debug("recipe %s of %s refused: %s", key, party, verdict.summary)
            return sealed.payload
        now = self.clock.wall()
        ending = Ending(Phase.FAILED, verdict.summary, verdict.code)
        told = None
        if verdict.tell:
            told = self.voice.status(verdict.identity, SayEnd(ending, 0, ()), serial=1, pct=-1)

        def work(db: Db) -> OutRow | None:
            if also is not None:
                also(db)
            bake = 0
            if verdict.uses_id:
                bake = insert_bake(
                    db,
                    party=verdict.party,
                    key=key,
                    identity=verdict.identity,
                    created=envelope.created,
                    expires=0,
                    received=now,
                    state=State(phase=Phase.FAILED, ending=ending),
                    xml=None,
                    params=None,
                    ended=now,
                )
            # Refused for the moment only: the same message may come again and be taken.
            if verdict.code is not Code.DRAINING:
                save_answer(db, party, envelope.id, sealed.payload, now)
            return self.kitchen.status.insert(db, bake, 1, *told) if told is not None else None

        def after(row: OutRow | None) -> None:
            if row is not None:
                self.kitchen.status.journaled(row)

        await self.kitchen.journal.commit(work, after)
        log.info("recipe %s of %s refused: %s: %s", key, party, verdict.code, verdict.summary)
        return sealed.payload
