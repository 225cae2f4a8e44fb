"""Controls as a stranger would write them (any entries, verb, sender), and what one waits for then."""

from __future__ import annotations

import os
import time
from typing import Any

from bakemesh.bus import Bus
from bakemesh.bus.replies import received
from bakemesh.protocol import envelope, subjects
from bakemesh.protocol.builder.messages import BakePaused, BakeStatus, Result
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import Bake
from support.house import said

RETRYABLE = 'retryable="yes"'
AFTER = '<cli name="after" command="true"/>'


def entries_of(identity: Identity) -> dict[str, Any]:
    """The five entries."""
    return {
        "Supervisor": identity.supervisor,
        "Recipe": identity.recipe,
        "RecipeID": identity.recipe_id,
        "Node": identity.node,
        "NodeID": identity.node_id,
    }


async def control(
    bus: Bus,
    identity: Identity,
    verb: str,
    ctrlseq: Any = 1,
    *,
    issuedby: Any = None,
    party: str | None = None,
    key: str | None = None,
    without: tuple[str, ...] = (),
    timeout: float = 20.0,
    **changed: Any,
) -> Result:
    """Sends a control and returns its Result. `party` sends it (default: the bake's owner), `issuedby` says
    who did (default: the party), `without` leaves entries out, `changed` sets further ones.
    """
    party = party or identity.supervisor
    entries = {**entries_of(identity), "ctrlseq": ctrlseq, "issuedby": issuedby or party, **changed}
    for name in without:
        del entries[name]
    kind = f"{subjects.CONTROL}.{verb}"
    subject = subjects.build(bus.mesh, identity.node_id, party, key or identity.recipe_id, kind)
    payload = envelope.pack(kind, os.urandom(16), time.time_ns() // 1000, f"{party}@test", entries)
    answer = received(subject, await bus.link.ask(subject, payload, timeout))
    assert isinstance(answer.message, Result), answer
    return answer.message


async def ok(asked: object) -> Result:
    """The Result of a control that must be accepted."""
    result: Result = await asked  # type: ignore[misc]
    assert (result.accepted, result.code) == (True, "ok"), result
    return result


def paused(status: BakeStatus) -> bool:
    return isinstance(status, BakePaused)


async def at_rest(bake: Bake, times: int = 1) -> BakePaused:
    """The nth Bake.Paused."""
    count = 0

    def nth(status: BakeStatus) -> bool:
        nonlocal count
        count += isinstance(status, BakePaused)
        return count == times

    found = await said(bake, nth)
    assert isinstance(found, BakePaused)
    return found
