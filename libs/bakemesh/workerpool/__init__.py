"""A pool of engine workers, supervised so that nothing ever hangs.

    async with Pool(Settings(runtime_dir=Path("/run/user/1000/bakemesh"), workers=2)) as pool:
        model = await pool.load(Artifact(path=path, digest="sha256:…"), {"pooling": "mean"})
        vectors = await pool.embed(model.key, Share(counts=[3], ids=ids))

| module | is |
|---|---|
| `budget` `charging` `deadlines` `pauses` `placing` `strikes`, `ledger` | what is decided: pure |
| `wire` `places` `spawning` `output` `starting` | one process and its connection |
| `worker` → `lane` → `pool` | a request on a worker; a worker kept running; requests over workers |
| `asking` `probing` `job` `call`, `turns` | what can be asked, and on its way; one at a time a lane |
| `quarantine` `health` `errors` `telling` `models` `settings` | what is kept, told, raised, passed |

The protocol: protocol/worker-v1.md. Left out: the worker (a service), tokenization, scheduling, the bus.
"""

from bakemesh.workerpool import budget, deadlines
from bakemesh.workerpool.call import Call
from bakemesh.workerpool.errors import (
    ArtifactInvalid,
    BadRequest,
    Cancelled,
    CapabilityAbsent,
    ConfigInvalid,
    DeadlineExceeded,
    EngineCrashed,
    InferenceFailed,
    LaneBusy,
    LoadFailed,
    LoadOutOfMemory,
    ModelQuarantined,
    ModelUnknown,
    OutOfMemory,
    PoolClosed,
    Refused,
    RequestPoisoned,
    RuntimeDirRefused,
    WorkerPoolError,
    WorkerUnavailable,
)
from bakemesh.workerpool.health import Health, LaneHealth, LaneState, ModelHealth
from bakemesh.workerpool.models import (
    Artifact,
    Info,
    Loaded,
    ModelKey,
    Sampling,
    Share,
    Text,
    Token,
    Vectors,
    key_of,
)
from bakemesh.workerpool.pool import Pool
from bakemesh.workerpool.settings import Settings
from bakemesh.workerpool.telling import error_object
from bakemesh.workerpool.turns import Turns

__all__ = [
    "Artifact",
    "ArtifactInvalid",
    "BadRequest",
    "Call",
    "Cancelled",
    "CapabilityAbsent",
    "ConfigInvalid",
    "DeadlineExceeded",
    "EngineCrashed",
    "Health",
    "InferenceFailed",
    "Info",
    "LaneBusy",
    "LaneHealth",
    "LaneState",
    "LoadFailed",
    "LoadOutOfMemory",
    "Loaded",
    "ModelHealth",
    "ModelKey",
    "ModelQuarantined",
    "ModelUnknown",
    "OutOfMemory",
    "Pool",
    "PoolClosed",
    "Refused",
    "RequestPoisoned",
    "RuntimeDirRefused",
    "Sampling",
    "Settings",
    "Share",
    "Text",
    "Token",
    "Turns",
    "Vectors",
    "WorkerPoolError",
    "WorkerUnavailable",
    "budget",
    "deadlines",
    "error_object",
    "key_of",
]
