"""Files by their digest: what modules ingest, and lane hosts pull.

    cache = Cache(Path("state/synapse/cache"))
    digest = hash_file(source, lambda done, total: …)
    path = cache.take(source, digest)            # a file that is here
    into = cache.receive(digest, size)           # one that comes in pieces
    into.write(0, piece); path = into.finish()

| module | is |
|---|---|
| `digests` | `sha256:<hex>`: made, checked |
| `files` | temporary files that a crash leaves behind, copies that cost nothing where the disk can |
| `cache`, `staging`, `receiving` | the folder; a file on its way in, from this machine or from another one |
"""

from bakemesh.artifacts.cache import Cache
from bakemesh.artifacts.digests import Progress, hash_file, hex_of
from bakemesh.artifacts.errors import ArtifactBroken
from bakemesh.artifacts.receiving import Receiver
from bakemesh.artifacts.staging import Staged

__all__ = ["ArtifactBroken", "Cache", "Progress", "Receiver", "Staged", "hash_file", "hex_of"]
