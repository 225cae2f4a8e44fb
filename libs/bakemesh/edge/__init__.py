"""What an author of synapses writes against: `Axon` takes the functions, `Call` tells them who asks.

    axon = Axon().attach(echo, refuses_strangers, by_stake)

| module | what it is |
|---|---|
| `axon` | the routes of a gateway, one a synapse class |
| `functions` | a user's function, and how it is called: plain, async, generator, with a `Call` or without |
| `call` | what a function is told of a request beyond its synapse |
| `loading` | a user's Python file that defines them |
| `errors` | what goes wrong |

Left out: HTTP, signatures, limits: the gateway (`bakemesh axon`).
"""

from __future__ import annotations

from bakemesh.edge.axon import Axon, Guard, Route
from bakemesh.edge.call import Call
from bakemesh.edge.errors import AttachRefused, FileRefused, HandlerFailed, HandlerRefused
from bakemesh.edge.loading import load
from bakemesh.protocol.axon.verdicts import Verdict

__all__ = [
    "AttachRefused",
    "Axon",
    "Call",
    "FileRefused",
    "Guard",
    "HandlerFailed",
    "HandlerRefused",
    "Route",
    "Verdict",
    "load",
]
