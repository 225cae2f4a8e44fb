"""The inbox's shell: recipes and pushes come in one after the other, are judged, journaled, and only then
acknowledged.

Idempotent: a message that comes again gets its journaled Result once more and nothing else happens.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from bakemesh.builder import judge
from bakemesh.builder.answers import Answers
from bakemesh.builder.bake.state import State
from bakemesh.builder.clock import Clock
from bakemesh.builder.forwarding import Forwarding
from bakemesh.builder.journal import Journal, JournalBroken, JournalClosed
from bakemesh.builder.journal.records import (
    BakeRow,
    Db,
    answer_of,
    insert_bake,
    save_answer,
)
from bakemesh.builder.kitchen import Kitchen
from bakemesh.builder.pushes import Pushes
from bakemesh.builder.refusing import Refusing
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.inbox import Inbox, Item
from bakemesh.bus.verbs import Refusals
from bakemesh.protocol import envelope as envelopes
from bakemesh.protocol.admit import Cause, Refusal, admit
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.messages import Result, clip
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.subjects import BAKE_DATA_PUSH, RECIPE, Subject

log = logging.getLogger(__name__)


class Taken(NamedTuple):
    """A message that was let in. `reply`: where its Result goes."""

    subject: Subject
    envelope: envelopes.Envelope
    reply: str | None


class Intake:
    """Takes what the inbox delivers until it is cancelled."""

    def __init__(
        self,
        bus: Bus,
        inbox: Inbox,
        journal: Journal,
        kitchen: Kitchen,
        pushes: Pushes,
        refusing: Refusing,
        forwarding: Forwarding,
        answers: Answers,
        clock: Clock,
    ) -> None:
        self.bus, self.inbox, self.journal = bus, inbox, journal
        self.kitchen, self.pushes, self.clock = kitchen, pushes, clock
        self.refusing, self.forwarding, self.answers = refusing, forwarding, answers
        self.dropped = Refusals()

    async def run(self) -> None:
        """Takes items for ever."""
        async for item in self.inbox:
            try:
                await self.take(item)
            except BusError as error:
                log.warning("inbox: %s; the message will come again", error)
                await item.nak(1.0)
            except JournalClosed:
                return
            except JournalBroken:
                raise  # nothing can be taken any more; this message comes again to the next Builder
            except Exception as error:
                # A message that breaks the Builder's own code must not come again for ever.
                log.exception("inbox: message on %s dropped", item.subject)
                self.dropped.counts["internal"] += 1
                await item.ack()
                self._failed(item, error)

    async def take(self, item: Item) -> None:
        """One message, to its acknowledgement."""
        found = self._admit(item)
        if isinstance(found, Refusal):
            self.dropped.note(found)
            await item.ack()
            self.answers.send(found.reply, None if found.reply is None else self._malformed(found))
            return
        subject, envelope, reply = found
        known = answer_of(self.journal.db, subject.party, envelope.id)
        if known is not None:
            await self._again(item, found, known[0])
        elif envelope.type == RECIPE:
            await self._recipe(item, found)
        else:
            result = await self.pushes.take(subject, envelope)
            sealed = self.bus.seal(result)
            now = self.clock.wall()
            await self.journal.commit(
                lambda db: save_answer(db, subject.party, envelope.id, sealed.payload, now)
            )
            await item.ack()
            self.answers.send(reply, sealed.payload)

    def _admit(self, item: Item) -> Taken | Refusal:
        """What is to be judged. An envelope that can be read is, whatever its entries: its Result says what
        is wrong with them. All else is dropped.
        """
        admitted = admit(item.subject, None, item.headers, item.payload)
        if isinstance(admitted, Refusal) and (admitted.reason is not Cause.UNDECODABLE or not admitted.type):
            return admitted
        subject = admitted.subject
        assert subject is not None
        if subject.type not in (RECIPE, BAKE_DATA_PUSH):
            return Refusal(Cause.OTHER_TYPE, f"{subject.type} has no business in an inbox", subject.party)
        try:
            envelope = envelopes.unpack(item.payload)
        except MessageError:
            assert isinstance(admitted, Refusal)
            return admitted
        return Taken(subject, envelope, admitted.reply)

    def _malformed(self, refusal: Refusal) -> bytes:
        """The Result of bytes that are no message."""
        verb = "BakeData" if refusal.subject and refusal.subject.type == BAKE_DATA_PUSH else "Recipe"
        result = Result(
            verb=verb, accepted=False, code=str(Code.MALFORMED_MESSAGE), summary=clip(refusal.detail)
        )
        return self.bus.seal(result).payload

    def _failed(self, item: Item, error: Exception) -> None:
        """Whoever sent a message that could not be worked on hears so: what was journaled, or that it was not
        understood.
        """
        found = self._admit(item)
        if found.reply is None or found.subject is None:
            return
        subject = found.subject
        if isinstance(found, Taken):
            known = answer_of(self.journal.db, subject.party, found.envelope.id)
            if known is not None:
                self.answers.send(found.reply, known[0])
                return
        why = f"the Builder failed to work on this message: {type(error).__name__}"
        self.answers.send(
            found.reply, self._malformed(Refusal(Cause.UNDECODABLE, why, "", subject, found.reply))
        )

    # -- recipes

    async def _recipe(self, item: Item, taken: Taken) -> None:
        verdict = judge.judge(taken.subject, taken.envelope, self.kitchen.facts())
        match verdict:
            case judge.Bake():
                await self._bake(item, taken, verdict)
            case judge.Forward():
                await self._forward(item, taken, verdict, f"{taken.envelope.msg_id}-fwd")
            case judge.Refuse():
                subject = taken.subject
                payload = await self.refusing.refuse(subject.party, subject.key, taken.envelope, verdict)
                await item.ack()
                self.answers.send(taken.reply, payload)

    async def _bake(self, item: Item, taken: Taken, verdict: judge.Bake) -> None:
        message, envelope, now = verdict.message, taken.envelope, self.clock.wall()
        result = Result(
            **verdict.identity.fields(), verb="Recipe", accepted=True, code=str(Code.OK), summary="accepted"
        )
        sealed = self.bus.seal(result)

        def work(db: Db) -> int:
            bake = insert_bake(
                db,
                party=message.supervisor,
                key=message.recipe_id,
                identity=verdict.identity,
                created=envelope.created,
                expires=verdict.expires,
                received=now,
                state=State(),
                xml=message.recipe_spec,
                params=message.params,
            )
            save_answer(db, taken.subject.party, envelope.id, sealed.payload, now)
            return bake

        bake = await self.journal.commit(work)
        row = BakeRow(
            bake=bake,
            identity=verdict.identity,
            created=envelope.created,
            expires=verdict.expires,
            received=now,
            state=State(),
            xml=message.recipe_spec,
            params=message.params or {},
            serial=0,
            seq=0,
            open_streams=[],
            ended=None,
        )
        # The first Status, the Result and the acknowledgement leave together: each by itself would have the
        # server woken before the next is ready. The acknowledgement is last, for it is waited for.
        await self.kitchen.admit(row, verdict.recipe).spoken()
        await self.answers.say(taken.reply, result)
        await item.ack()

    async def _forward(self, item: Item, taken: Taken, verdict: judge.Forward, msg_id: str) -> None:
        subject, payload, now = taken.subject, bytes(item.payload), self.clock.wall()

        def work(db: Db) -> None:
            self.forwarding.insert(db, verdict.node_id, subject.key, msg_id, item.headers, payload)
            save_answer(db, subject.party, taken.envelope.id, None, now)

        await self.journal.commit(work)
        self.forwarding.go()
        await item.ack()
        log.info("recipe %s of %s forwarded to %s", subject.key, subject.party, verdict.node_id)

    async def _again(self, item: Item, taken: Taken, result: bytes | None) -> None:
        """A message that came before: its journaled Result once more. Of one that was forwarded the target
        has it, so the recipe goes there again.
        """
        if result is None:
            verdict = judge.judge(taken.subject, taken.envelope, self.kitchen.facts())
            if isinstance(verdict, judge.Forward):
                # The ids before would be taken for duplicates, the same delivery twice is one.
                await self._forward(item, taken, verdict, f"{taken.envelope.msg_id}-fwd-{item.sequence}")
                return
        await item.ack()
        self.answers.send(taken.reply, result)
