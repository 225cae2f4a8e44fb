"""The crank API: what the author of a module writes against.

`api.Api` is what an `async def crank(api)` is given, `blocking.BlockingApi` the same for a plain `def`;
`messages.CrankMessage` is what wakes it, `errors` what it can do wrong. Behind them: `session` puts one
crank's life on the bus together out of `triggers`, `durable`, `ready`, `deliver` (what comes in), `mailbox`
and `backlog` (what waits), `posting` and `watching` (what goes out). What runs a crank is the service
`bakemesh.crankhost`; a service that is a component by itself is run by `serviced`. Text:
docs/write-a-module.md.
"""

from bakemesh.crank.api import Api
from bakemesh.crank.blocking import BlockingApi
from bakemesh.crank.errors import CrankError, CrankOver, EntriesRefused, NoSupervisor, UnknownName
from bakemesh.crank.messages import CrankMessage, Entries
from bakemesh.crank.watching import WatchRefused

__all__ = [
    "Api",
    "BlockingApi",
    "CrankError",
    "CrankMessage",
    "CrankOver",
    "Entries",
    "EntriesRefused",
    "NoSupervisor",
    "UnknownName",
    "WatchRefused",
]
