"""The client of axons: ours, the Python SDK's and those of `btauth/1`.

    async with Dendrite(load_hotkey("keys/me.json")) as dendrite:
        answer = await dendrite.query(Target("10.0.0.7", 8091, AXON_HOTKEY), Echo(text="hello"))
        if answer.is_success: …

| module | what it is |
|---|---|
| `client` | `Dendrite`: its connections, `query`, `stream` |
| `streaming` | an answer in parts |
| `target` | an axon as it is called |
| `building` | a synapse made a signed request |
| `answering` | an answer made the synapse's new state |
| `failures` | what the network does, as status codes |
| `lanes`, `nonces` | nonces that rise as the axon demands |
| `errors` | what goes wrong |

`query` never raises for what an axon or the network does: the synapse says how it ended (`is_success`,
`dendrite.status_code`, `dendrite.status_message`, `dendrite.process_time`). Left out: finding axons.
"""

from bakemesh.dendrite.client import Dendrite
from bakemesh.dendrite.errors import CallFailed, TargetRefused
from bakemesh.dendrite.streaming import Stream
from bakemesh.dendrite.target import Target

__all__ = ["CallFailed", "Dendrite", "Stream", "Target", "TargetRefused"]
