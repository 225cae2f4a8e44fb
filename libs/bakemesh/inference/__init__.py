"""The client of inference on the bus: embeddings, rerankings, text. Text: protocol/inference-v1.md.

    async with Inference.connect("nats://…", name="app") as inference:
        vectors = await inference.embed(["one", "two"], model="minilm")        # float32, (2, dims)
        async for part in inference.stream("Once", model="small"): ...         # Token …, then Text

`session.Inference` is the whole of it, `errors` all that can go wrong, `blocking` the same for scripts
without asyncio. Needs numpy (`pip install 'bakemesh[inference]'`). Text: docs/inference.md.
"""

from bakemesh.inference.errors import (
    AnswerBroken,
    ArtifactInvalid,
    BadRequest,
    Cancelled,
    CapabilityAbsent,
    Closed,
    ConfigInvalid,
    DeadlineExceeded,
    EngineCrashed,
    InferenceError,
    InferenceFailed,
    LaneBusy,
    ModelLoading,
    ModelUnknown,
    ModuleRestarted,
    NodeGone,
    NoNode,
    OtherFailure,
    OutOfMemory,
    ProbeRequired,
    QueueFull,
    TooManyTokens,
)
from bakemesh.inference.results import Health, Ingested, IngestProgress, ModelInfo, Text, Token, Usage
from bakemesh.inference.session import Inference

__all__ = [
    "AnswerBroken",
    "ArtifactInvalid",
    "BadRequest",
    "Cancelled",
    "CapabilityAbsent",
    "Closed",
    "ConfigInvalid",
    "DeadlineExceeded",
    "EngineCrashed",
    "Health",
    "Inference",
    "InferenceError",
    "InferenceFailed",
    "IngestProgress",
    "Ingested",
    "LaneBusy",
    "ModelInfo",
    "ModelLoading",
    "ModelUnknown",
    "ModuleRestarted",
    "NoNode",
    "NodeGone",
    "OtherFailure",
    "OutOfMemory",
    "ProbeRequired",
    "QueueFull",
    "Text",
    "Token",
    "TooManyTokens",
    "Usage",
]
