"""The Supervisor SDK: mint recipes, send them, follow and steer the bakes.

    async with Supervisor.connect(nats="nats://…", name="nightly") as supervisor:
        bake = await supervisor.bake(xml, node="beta")
        async for chunk in bake.data(): ...
        outcome = await bake.outcome()

`session.Supervisor` is the whole of it, `bake.Bake` a handle on one bake, `errors` all that can go wrong,
`blocking` the same for scripts without asyncio. Text: docs/write-a-supervisor.md.
"""

from bakemesh.supervisor.bake import Bake
from bakemesh.supervisor.cohort import BakeSummary, Cohort, CohortBake, CohortSummary
from bakemesh.supervisor.errors import (
    AmbiguousComponent,
    AmbiguousNode,
    AmbiguousRecipeID,
    BakeUnknown,
    Closed,
    CohortUnknown,
    ComponentUnknown,
    DataLate,
    DataPruned,
    MessageTooLarge,
    MintExhausted,
    NodeUnknown,
    NodeUnreachable,
    NoNodeAvailable,
    NotStored,
    RecipeRejected,
    ResultTimeout,
    StateDamaged,
    StatusPruned,
    SupervisorError,
)
from bakemesh.supervisor.mint import Mint
from bakemesh.supervisor.nodes import ANY_NODE, NodeInfo, NodeState
from bakemesh.supervisor.notices import Notice, NoticeReader
from bakemesh.supervisor.operate import ComponentInfo
from bakemesh.supervisor.recipe import Prepared
from bakemesh.supervisor.session import Supervisor

__all__ = [
    "ANY_NODE",
    "AmbiguousComponent",
    "AmbiguousNode",
    "AmbiguousRecipeID",
    "Bake",
    "BakeSummary",
    "BakeUnknown",
    "Closed",
    "Cohort",
    "CohortBake",
    "CohortSummary",
    "CohortUnknown",
    "ComponentInfo",
    "ComponentUnknown",
    "DataLate",
    "DataPruned",
    "MessageTooLarge",
    "Mint",
    "MintExhausted",
    "NoNodeAvailable",
    "NodeInfo",
    "NodeState",
    "NodeUnknown",
    "NodeUnreachable",
    "NotStored",
    "Notice",
    "NoticeReader",
    "Prepared",
    "RecipeRejected",
    "ResultTimeout",
    "StateDamaged",
    "StatusPruned",
    "Supervisor",
    "SupervisorError",
]
