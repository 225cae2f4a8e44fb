"""The bus of a mesh: nats-py wrapped once.

`connection.Bus` has the five verbs and is what services hold; `settings.BusSettings` says how to reach a
server; `errors` and `events` are all that can go wrong and all that can happen. `storing`, `jsapi`, `kv`,
`claim` are JetStream as it is on the wire; `server.EmbeddedServer` runs a real nats-server. Nothing above
this package imports nats.
"""

from bakemesh.bus.connection import Bus
from bakemesh.bus.kv import Bucket, Entry
from bakemesh.bus.sealing import Sealed
from bakemesh.bus.settings import BusSettings, Credentials, Tls
from bakemesh.bus.storing import StoredAck

__all__ = ["Bucket", "Bus", "BusSettings", "Credentials", "Entry", "Sealed", "StoredAck", "Tls"]
