"""The inbox's shell: recipes and pushes come in one after the other, are judged, journaled, and only then
acknowledged.

Idempotent: a message that comes again gets its journaled Result once more and nothing else happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

import msgpack

from bakemesh.builder import judge
from bakemesh.builder.bake.state import Ending, SayEnd, State
from bakemesh.builder.bake.voice import Sealed as SealedStatus
from bakemesh.builder.bake.voice import Voice, cut
from bakemesh.builder.clock import Clock
from bakemesh.builder.journal import Journal, JournalBroken, JournalClosed
from bakemesh.builder.journal.records import (
    Db,
    OutRow,
    answer_of,
    bake_row,
    insert_bake,
    save_answer,
)
from bakemesh.builder.kitchen import Kitchen
from bakemesh.builder.pushes import Pushes
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.inbox import Inbox, Item
from bakemesh.bus.sealing import Sealed
from bakemesh.bus.verbs import Refusals
from bakemesh.protocol import envelope as envelopes
from bakemesh.protocol.admit import Cause, Refusal, admit
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.builder.lifecycle import Phase
from bakemesh.protocol.builder.messages import Result
from bakemesh.protocol.errors import MessageError
from bakemesh.protocol.message import Message, decode
from bakemesh.protocol.subjects import BAKE_DATA_PUSH, RECIPE, Subject

log = logging.getLogger(__name__)


class Taken(NamedTuple):
    """A message that was let in. `reply`: where its Result goes."""

    subject: Subject
    envelope: envelopes.Envelope
    reply: str | None
    headers: Mapping[str, str]


class Intake:
    """Takes what the inbox delivers until it is cancelled."""

    def __init__(
        self,
        bus: Bus,
        inbox: Inbox,
        journal: Journal,
        kitchen: Kitchen,
        pushes: Pushes,
        voice: Voice,
        clock: Clock,
    ) -> None:
        self.bus, self.inbox, self.journal = bus, inbox, journal
        self.kitchen, self.pushes, self.voice, self.clock = kitchen, pushes, voice, clock
        self.dropped = Refusals()
        self._forwarding: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Takes items for ever."""
        self._resume_forwards()
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
                self._answer_failure(item, error)

    async def close(self) -> None:
        """Ends the forwards under way; the journal has them."""
        for task in self._forwarding:
            task.cancel()
        await asyncio.gather(*self._forwarding, return_exceptions=True)

    async def take(self, item: Item) -> None:
        """One message, to its acknowledgement."""
        found = self._admit(item)
        if isinstance(found, Refusal):
            self.dropped.note(found)
            await item.ack()
            self._answer(found.reply, None if found.reply is None else self._malformed(found))
            return
        subject, envelope, reply, headers = found
        known = answer_of(self.journal.db, subject.party, envelope.id)
        if known is not None:
            await item.ack()
            self._answer(reply, known[0])
        elif envelope.type == RECIPE:
            await self._recipe(item, subject, envelope, reply, headers)
        else:
            result = await self.pushes.take(subject, envelope)
            sealed = self.bus.seal(result)
            now = self.clock.wall()
            await self.journal.commit(
                lambda db: save_answer(db, subject.party, envelope.id, sealed.payload, now)
            )
            await item.ack()
            self._answer(reply, sealed.payload)

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
        return Taken(subject, envelope, admitted.reply, item.headers)

    def _malformed(self, refusal: Refusal) -> bytes:
        """The Result of bytes that are no message."""
        verb = "BakeData" if refusal.subject and refusal.subject.type == BAKE_DATA_PUSH else "Recipe"
        result = Result(
            verb=verb, accepted=False, code=str(Code.MALFORMED_MESSAGE), summary=cut(refusal.detail)
        )
        return self.bus.seal(result).payload

    def _answer_failure(self, item: Item, error: Exception) -> None:
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
                self._answer(found.reply, known[0])
                return
        why = f"the Builder failed to work on this message: {type(error).__name__}"
        self._answer(found.reply, self._malformed(Refusal(Cause.UNDECODABLE, why, "", subject, found.reply)))

    # -- recipes

    async def _recipe(
        self,
        item: Item,
        subject: Subject,
        envelope: envelopes.Envelope,
        reply: str | None,
        headers: Mapping[str, str],
    ) -> None:
        verdict = judge.judge(subject, envelope, self.kitchen.facts())
        match verdict:
            case judge.Bake():
                await self._bake(item, subject, envelope, verdict, reply)
            case judge.Forward():
                await self._forward(item, subject, envelope, verdict, headers)
            case judge.Refuse():
                await self._refuse(item, subject, envelope, verdict, reply)

    async def _bake(
        self,
        item: Item,
        subject: Subject,
        envelope: envelopes.Envelope,
        verdict: judge.Bake,
        reply: str | None,
    ) -> None:
        message, now = verdict.message, self.clock.wall()
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
            save_answer(db, subject.party, envelope.id, sealed.payload, now)
            return bake

        bake = await self.journal.commit(work)
        row = bake_row(self.journal.db, bake)
        assert row is not None
        self.kitchen.admit(row, verdict.recipe)
        await item.ack()
        self._answer(reply, sealed.payload)

    async def _refuse(
        self,
        item: Item,
        subject: Subject,
        envelope: envelopes.Envelope,
        verdict: judge.Refuse,
        reply: str | None,
    ) -> None:
        now = self.clock.wall()
        result = Result(
            **verdict.identity.fields(),
            verb="Recipe",
            accepted=False,
            code=str(verdict.code),
            summary=cut(verdict.summary),
            problems=list(verdict.problems) or None,
            retryms=verdict.retry_ms,
        )
        sealed = self.bus.seal(result)
        if (
            verdict.code is Code.RATE_LIMITED
        ):  # a flood leaves no trace: neither in the journal nor in the log
            log.debug("recipe %s of %s refused: %s", subject.key, subject.party, verdict.summary)
            await item.ack()
            self._answer(reply, sealed.payload)
            return
        ending = Ending(Phase.FAILED, verdict.summary, verdict.code)
        told: SealedStatus | None = None
        if verdict.tell:
            told = self.voice.status(verdict.identity, SayEnd(ending, 0, ()), serial=1, pct=-1)

        def work(db: Db) -> OutRow | None:
            bake = 0
            if verdict.uses_id:
                bake = insert_bake(
                    db,
                    party=verdict.party,
                    key=subject.key,
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
                save_answer(db, subject.party, envelope.id, sealed.payload, now)
            return self.kitchen.status.insert(db, bake, 1, *told) if told is not None else None

        def after(row: OutRow | None) -> None:
            if row is not None:
                self.kitchen.status.journaled(row)

        await self.journal.commit(work, after)
        log.info("recipe %s of %s refused: %s: %s", subject.key, subject.party, verdict.code, verdict.summary)
        await item.ack()
        self._answer(reply, sealed.payload)

    # -- forwarding

    async def _forward(
        self,
        item: Item,
        subject: Subject,
        envelope: envelopes.Envelope,
        verdict: judge.Forward,
        headers: Mapping[str, str],
    ) -> None:
        target = (
            f"{subject.mesh}.{verdict.node_id}.builder-{self.kitchen.node_id}.{subject.key}.{subject.type}"
        )
        msg_id = f"{envelope.msg_id}-fwd"
        kept = {name: value for name, value in headers.items() if name != "Nats-Msg-Id"}
        packed, payload, now = msgpack.packb(kept), bytes(item.payload), self.clock.wall()

        def work(db: Db) -> int:
            cursor = db.execute(
                "INSERT INTO forwards (subject, msg_id, headers, payload) VALUES (?,?,?,?)",
                (target, msg_id, packed, payload),
            )
            save_answer(db, subject.party, envelope.id, None, now)
            assert cursor.lastrowid is not None
            return cursor.lastrowid

        number = await self.journal.commit(work)
        await item.ack()
        log.info("recipe %s of %s forwarded to %s", subject.key, subject.party, verdict.node_id)
        self._start_forward(number, target, msg_id, kept, payload)

    def _resume_forwards(self) -> None:
        rows = self.journal.db.execute(
            "SELECT id, subject, msg_id, headers, payload FROM forwards"
        ).fetchall()
        for number, subject, msg_id, headers, payload in rows:
            self._start_forward(number, subject, msg_id, msgpack.unpackb(headers), payload)

    def _start_forward(
        self, number: int, subject: str, msg_id: str, headers: Mapping[str, str], payload: bytes
    ) -> None:
        task = asyncio.create_task(self._send_forward(number, subject, msg_id, headers, payload))
        self._forwarding.add(task)
        task.add_done_callback(self._forwarding.discard)

    async def _send_forward(
        self, number: int, subject: str, msg_id: str, headers: Mapping[str, str], payload: bytes
    ) -> None:
        """Until the target's inbox has it. The Nats-Msg-Id differs: the plain one would be taken for a
        duplicate.
        """
        pause = 0.1
        while True:
            try:
                await self.bus.publish_stored(subject, Sealed(payload, msg_id), headers=headers)
            except BusError as error:
                log.warning("forward to %s: %s; again in %.1f s", subject, error, pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
            else:
                break
        await self.journal.commit(lambda db: db.execute("DELETE FROM forwards WHERE id=?", (number,)))

    # -- answers

    def _answer(self, reply: str | None, payload: bytes | None) -> None:
        if reply is None or payload is None:
            return
        message: Message = decode(payload).message
        task = asyncio.create_task(self._say(reply, message))
        self._forwarding.add(task)
        task.add_done_callback(self._forwarding.discard)

    async def _say(self, reply: str, message: Message) -> None:
        try:
            await self.bus.publish(reply, message)
        except BusError as error:
            log.info("a Result could not be sent to %s: %s", reply, error)
