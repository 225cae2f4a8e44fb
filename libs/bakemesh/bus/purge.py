"""Removing a bake from the streams, and knowing when that may be done.

A purge does not reach the streams that source this one, and it overtakes sourcing: what the hub has not
fetched yet is lost to it without a word. So a leaf's node purges a bake only after the hub holds its
terminal. Left out: which bake is to go, and when.
"""

from __future__ import annotations

from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import NotFound
from bakemesh.bus.jsapi import JsApi, Stored
from bakemesh.protocol import storage, subjects

_NO_MESSAGE = 10037
_TERMINALS = ("Success", "Failed", "Cancelled")


async def purge_subject(bus: Bus, stream: str, subject: str, *, api: JsApi | None = None) -> int:
    """Removes every message of `subject` (wildcards allowed) from `stream`; gives their number.

    `api`: another JetStream than the server's own, for instance `bus.hub_api`. Raises NotFound,
    StoreUnavailable, StoreTimeout (it may be done), AccessDenied, NotConnected, BusClosed.
    """
    return await (api or bus.api).purge_stream(stream, subject=subject)


async def stored_terminal(bus: Bus, *, node_id: str, party: str, key: str) -> Stored | None:
    """The terminal of the bake (`party`, `key`) of `node_id` as the hub holds it; None where it holds none.

    Raises what the API raises where the hub cannot say: then nothing is known.
    """
    stream = storage.hub_status_stream(bus.mesh)
    for name in _TERMINALS:
        subject = subjects.build(bus.mesh, node_id, party, key, f"{subjects.BAKE}.{name}")
        try:
            return await bus.hub_api.get_message(stream, last_of=subject)
        except NotFound as error:
            if error.err_code != _NO_MESSAGE:
                raise
    return None
