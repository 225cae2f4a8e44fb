"""Recipes for another node, on their way there: journaled with their inbox message, sent until the target's
inbox has them.

The same bytes go out under the party of this node, with no header but those of the protocol: whatever else
the sender's client put there (`Nats-Expected-…`) was meant for another stream. What can never be sent is
refused from here, so that nobody waits for it. A few are under way at once; the rest waits in the journal,
for as long as the hub is away. Left out: whether a recipe is to be forwarded (see `judge`), and its Result,
which is the target's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

import msgpack

from bakemesh.builder import judge
from bakemesh.builder.answers import Answers
from bakemesh.builder.journal.records import Db
from bakemesh.builder.kitchen import Kitchen
from bakemesh.builder.refusing import Refusing
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import AccessDenied, BusError, MessageTooLarge
from bakemesh.bus.framing import HEAD_ROOM
from bakemesh.bus.sealing import Sealed
from bakemesh.protocol import envelope as envelopes
from bakemesh.protocol import subjects
from bakemesh.protocol.admit import REPLY_HEADER
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.rights import builder_name

log = logging.getLogger(__name__)
CARRIED = (REPLY_HEADER, "traceparent", "tracestate")
AT_ONCE = 16
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


def carried(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that go on, written as the protocol writes them."""
    found = {name.lower(): value for name, value in headers.items()}
    return {name: found[name.lower()] for name in CARRIED if name.lower() in found}


class Row(NamedTuple):
    """A forward as the journal has it."""

    id: int
    subject: str
    msg_id: str
    headers: bytes
    payload: bytes


class Forwarding:
    """The forwards of one Builder."""

    def __init__(self, bus: Bus, kitchen: Kitchen, refusing: Refusing, answers: Answers) -> None:
        self.bus, self.kitchen, self.refusing, self.answers = bus, kitchen, refusing, answers
        self.journal = kitchen.journal
        self._news = asyncio.Event()

    def insert(
        self, db: Db, node_id: str, key: str, msg_id: str, headers: Mapping[str, str], payload: bytes
    ) -> None:
        """Adds one, inside a journal transaction; `go` after the commit.

        `msg_id` must differ from the recipe's own, which the hub's inbox would take for a duplicate.
        """
        party = builder_name(self.kitchen.node_id)
        subject = subjects.build(self.bus.mesh, node_id, party, key, subjects.RECIPE)
        db.execute(
            "INSERT INTO forwards (subject, msg_id, headers, payload) VALUES (?,?,?,?)",
            (subject, msg_id, msgpack.packb(carried(headers)), payload),
        )

    def go(self) -> None:
        """There is something to send."""
        self._news.set()

    async def run(self) -> None:
        """Sends what the journal holds, for ever, in its order, some at once."""
        while True:
            self._news.clear()
            found = self.journal.db.execute(
                "SELECT id, subject, msg_id, headers, payload FROM forwards ORDER BY id LIMIT ?", (AT_ONCE,)
            ).fetchall()
            if found:
                await asyncio.gather(*(self._send(Row(*row)) for row in found))
            else:
                await self._news.wait()

    async def _send(self, row: Row) -> None:
        """Until the target's inbox has it, or it is known that it never will."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                limit = self.bus.max_payload - HEAD_ROOM
                if len(row.payload) > limit:  # with its headers the server would close the connection over it
                    raise MessageTooLarge(row.subject, len(row.payload), limit)
                headers = msgpack.unpackb(row.headers)
                await self.bus.publish_stored(row.subject, Sealed(row.payload, row.msg_id), headers=headers)
            except MessageTooLarge as error:
                await self._give_up(row, Code.TOO_LARGE, error)
                return
            except AccessDenied as error:
                await self._give_up(row, Code.UNAUTHORISED, error)
                return
            except BusError as error:
                log.warning("forward to %s: %s; again in %.1f s", row.subject, error, pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
            else:
                await self.journal.commit(lambda db: self._struck(db, row))
                return

    async def _give_up(self, row: Row, code: Code, error: BusError) -> None:
        log.warning("forward to %s given up: %s", row.subject, error)
        target = subjects.parse(row.subject)
        envelope = envelopes.unpack(row.payload)
        why = f"cannot be forwarded to node {target.node_id}: {error}"
        verdict = judge.given_up(envelope, target.key, self.kitchen.facts(), code, why)
        payload = await self.refusing.refuse(
            verdict.party, target.key, envelope, verdict, lambda db: self._struck(db, row)
        )
        self.answers.send(msgpack.unpackb(row.headers).get(REPLY_HEADER), payload)

    def _struck(self, db: Db, row: Row) -> None:
        db.execute("DELETE FROM forwards WHERE id=?", (row.id,))
