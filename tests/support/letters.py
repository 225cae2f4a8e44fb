"""Stored messages as a stranger would write them: any entries, any envelope, any sender.

result = await send(bus, recipe_subject(bus, identity), letter(RECIPE, {…}))
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from bakemesh.bus import Bus, Sealed
from bakemesh.protocol import envelope, subjects
from bakemesh.protocol.builder.messages import Result
from bakemesh.protocol.identity import Identity
from support.controls import entries_of


def letter(kind: str, entries: Mapping[Any, Any], *, created: int | None = None) -> Sealed:
    """A message in its envelope; neither need be valid."""
    drawn = os.urandom(16)
    when = time.time_ns() // 1000 if created is None else created
    return Sealed(envelope.pack(kind, drawn, when, "stranger@test", entries), drawn.hex())


def recipe_letter(
    identity: Identity,
    xml: Any = '<recipe><cli command="true"/></recipe>',
    *,
    without: tuple[str, ...] = (),
    created: int | None = None,
    **changed: Any,
) -> Sealed:
    """A recipe; `without` leaves entries out, `changed` sets further ones."""
    entries = {**entries_of(identity), "RecipeSpec": xml, **changed}
    for name in without:
        del entries[name]
    return letter(subjects.RECIPE, entries, created=created)


def inbox_subject(
    bus: Bus, identity: Identity, kind: str = subjects.RECIPE, *, party: str | None = None
) -> str:
    """Where a message of the bake goes."""
    return subjects.build(bus.mesh, identity.node_id, party or identity.supervisor, identity.recipe_id, kind)


def again(sealed: Sealed) -> Sealed:
    """The same message under another Nats-Msg-Id, so that the stream does not drop it as a duplicate."""
    return Sealed(sealed.payload, os.urandom(16).hex())


async def send(
    bus: Bus, subject: str, sealed: Sealed, *, headers: Mapping[str, str] | None = None, timeout: float = 20.0
) -> Result:
    """Has it stored, and gives the Result that comes."""
    with bus.inbox_reply() as reply:
        await bus.publish_stored(subject, sealed, reply.subject, headers)
        answer = await reply.received(timeout)
    assert isinstance(answer.message, Result), answer
    return answer.message
