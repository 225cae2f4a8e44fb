"""The one subject rule, and the one table of who says what to whom.

    <mesh>.<NodeID>.<party>.<key>.<Type>

Fixed positions first and the type, dots and all, last, so that NATS wildcards do all routing. `TABLE` carries
for each type what its tokens mean, how it travels, and which role may publish and subscribe it with which
tokens bound to its own name; server permissions are generated from it (`rights`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from bakemesh.protocol import names
from bakemesh.protocol.errors import NameRefused, SubjectError

ANY = "*"
NO_KEY = "-"
ANY_NODE = "any"  # in place of a NodeID: whichever node takes it


@dataclass(frozen=True, slots=True)
class Subject:
    """A concrete subject, in its five parts."""

    mesh: str
    node_id: str
    party: str
    key: str
    type: str

    def __str__(self) -> str:
        return f"{self.mesh}.{self.node_id}.{self.party}.{self.key}.{self.type}"


# A bake says the same few subjects thousands of times: both directions are remembered, within bounds.
@lru_cache(maxsize=4096)
def build(mesh: str, node_id: str, party: str, key: str, type: str) -> str:  # noqa: A002
    """The subject of a message. Raises NameRefused where a part cannot be a token."""
    names.check("mesh", mesh)
    names.check("NodeID", node_id)
    names.check("party", party)
    names.check("RecipeID", key)
    _check_type(type)
    return f"{mesh}.{node_id}.{party}.{key}.{type}"


def pattern(mesh: str, type: str, *, node_id: str = ANY, party: str = ANY, key: str = ANY) -> str:  # noqa: A002
    """A subscription or filter: each part a token or `*`; `type` may end in `*` or `>`."""
    return f"{mesh}.{node_id}.{party}.{key}.{type}"


@lru_cache(maxsize=4096)
def parse(subject: str) -> Subject:
    """The parts of a concrete subject. Raises SubjectError, which says which part is wrong."""
    parts = subject.split(".", 4)
    if len(parts) != 5:
        raise SubjectError(f"subject {subject[:200]!r}: expected <mesh>.<NodeID>.<party>.<key>.<Type>")
    mesh, node_id, party, key, type_ = parts
    try:
        names.check("mesh", mesh)
        names.check("NodeID", node_id)
        names.check("party", party)
        names.check("RecipeID", key)
        _check_type(type_)
    except NameRefused as error:
        raise SubjectError(f"subject {subject[:200]!r}: {error}") from error
    return Subject(mesh, node_id, party, key, type_)


def _check_type(type_: str) -> None:
    for segment in type_.split("."):
        if not segment:
            raise NameRefused("type", type_[:200], "holds an empty segment")
        if len(segment) > names.TOKEN_LENGTH or not names.is_valid("segment", segment):
            raise NameRefused("type", type_[:200], f"segment {segment[:80]!r} is no token")


class Role(StrEnum):
    """Kinds of identity that the server knows."""

    BUILDER = "builder"
    SUPERVISOR = "supervisor"
    OPERATOR = "operator"
    DASHBOARD = "dashboard"
    MODULE = "module"  # a component that posts and is woken by posts
    INFERENCE = "inference"  # a synapse module or a lane host, on its node
    GATEWAY = "gateway"  # an axon: asks synapse modules for those who come by HTTP
    LEAF = "leaf"  # the link of a leaf server; trusted mesh-wide


class Own(StrEnum):
    """Which token of a subject a right binds to the identity's own name."""

    NODE = "node"  # NodeID = the Builder's own
    PARTY = "party"  # party = its own name; a Builder's is builder-<NodeID>
    KEY = "key"  # key = its own name
    ANY_NODE = "any node"  # NodeID = `any`: whoever takes it first
    NOTHING = "nothing"  # any node, any party


class Travels(StrEnum):
    """How a type gets from one to the other."""

    INBOX = "stored in the inbox"
    REQUEST = "request"
    STATUS = "stored in the status stream"
    DATA = "stored in the data stream"
    CORE = "core"


Rights = tuple[tuple[Role, Own], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: a type (or a type pattern ending in `*`) and the rights to it.

    `subscribe` is live, on core NATS; `read` is from the stream that stores the type.
    """

    type: str
    travels: Travels
    publish: Rights
    subscribe: Rights
    read: Rights = ()


RECIPE = "Psyclone.Builder.Recipe"
BAKE_DATA_PUSH = "Psyclone.Builder.BakeData"
CONTROL = "Psyclone.Builder.BakeControl"
BAKE = "Psyclone.Builder.Bake"
RESULT = "Psyclone.Builder.Result"
SYSTEM_STATUS = "Psyclone.SystemStatus"
PERFORMANCE = "Psyclone.Builder.Performance"
COHORT_MESSAGE = "Psyclone.Builder.Cohort.Message"
COMPONENT_CONTROL = "Psyclone.Builder.ComponentControl"
NODE_CONTROL = "Psyclone.Builder.NodeControl"
COMPONENT_REPORT = "Psyclone.Component.Report"
COMPONENT_WATCH = "Psyclone.Component.Watch"
COMPONENT_DELIVER = "Psyclone.Component.Deliver"
READY = "Psyclone.Ready"
STARTUP_SPEC = "Psyclone.Startup.PsySpec"
STARTUP_RECONCILED = "Psyclone.Startup.Reconciled"
SYNAPSE = "Psyclone.Synapse"
SYNAPSE_STATUS = f"{SYNAPSE}.Status"
SYNAPSE_WORK = ("Embed", "Rerank", "Generate", "Cancel", "Models", "Health")
SYNAPSE_CARE = ("Probe", "Ingest")  # of a node's models: what operators ask
WORKER = "Psyclone.Worker"
WORKER_STATUS = f"{WORKER}.Status"
WORKER_VERBS = (
    "Load", "EmbedBatch", "Rerank", "Generate", "GenerateStream", "Cancel", "ModelInfo", "Probe", "Unload",
    "Ping", "Lane",
)  # fmt: skip
OUTCOMES = ("Success", "Failed", "Paused", "Cancelled", "Restarted")

# A Builder has a Supervisor's rights under its own name, for child recipes and forwarding.
_MINTS: Rights = ((Role.SUPERVISOR, Own.PARTY), (Role.OPERATOR, Own.PARTY), (Role.BUILDER, Own.PARTY))
_BUILDS: Rights = ((Role.BUILDER, Own.NODE),)
_OWNS: Rights = ((Role.SUPERVISOR, Own.PARTY), (Role.BUILDER, Own.PARTY), (Role.OPERATOR, Own.NOTHING))
_WATCHES: Rights = (*_OWNS, (Role.DASHBOARD, Own.NOTHING))
_STEERS: Rights = ((Role.SUPERVISOR, Own.NOTHING), (Role.OPERATOR, Own.NOTHING))
_SEES: Rights = (*_STEERS, (Role.BUILDER, Own.NOTHING), (Role.DASHBOARD, Own.NOTHING))
# What a component says to its Builder; a <supervisor> is a component too.
_RUNS: Rights = tuple(
    (role, Own.PARTY) for role in (Role.MODULE, Role.SUPERVISOR, Role.INFERENCE, Role.GATEWAY)
)
_WOKEN: Rights = (*_SEES, (Role.MODULE, Own.NOTHING))
_ASKS: Rights = (*_RUNS, (Role.OPERATOR, Own.PARTY))
_INFERS: Rights = ((Role.INFERENCE, Own.NODE),)
_PLACES: Rights = ((Role.INFERENCE, Own.PARTY),)
_CHOOSES: Rights = (*_WOKEN, (Role.INFERENCE, Own.NOTHING))  # by what nodes and lanes publish of themselves

TABLE: tuple[Row, ...] = (
    Row(RECIPE, Travels.INBOX, publish=_MINTS, subscribe=(), read=_BUILDS),
    Row(BAKE_DATA_PUSH, Travels.INBOX, publish=_MINTS, subscribe=(), read=_BUILDS),
    Row(f"{CONTROL}.*", Travels.REQUEST, publish=_MINTS, subscribe=_BUILDS),
    *(
        Row(f"{BAKE}.{name}", Travels.STATUS, publish=_BUILDS, subscribe=_WATCHES, read=_WATCHES)
        for name in ("Status", *OUTCOMES)
    ),
    # Data is read from its stream and never subscribed: core also delivers what a full stream refused.
    Row(f"{BAKE}.Data", Travels.DATA, publish=_BUILDS, subscribe=(), read=_OWNS),
    Row(SYSTEM_STATUS, Travels.CORE, publish=_BUILDS, subscribe=_SEES),
    Row(PERFORMANCE, Travels.CORE, publish=_BUILDS, subscribe=_SEES),
    Row(COHORT_MESSAGE, Travels.REQUEST, publish=_MINTS, subscribe=(*_BUILDS, *_STEERS)),
    Row(f"{COMPONENT_CONTROL}.*", Travels.REQUEST, publish=_MINTS, subscribe=_BUILDS),
    Row(f"{NODE_CONTROL}.*", Travels.REQUEST, publish=((Role.OPERATOR, Own.PARTY),), subscribe=_BUILDS),
    Row(COMPONENT_REPORT, Travels.REQUEST, publish=_RUNS, subscribe=_BUILDS),
    Row(COMPONENT_WATCH, Travels.CORE, publish=_RUNS, subscribe=_SEES),
    Row(
        COMPONENT_DELIVER,
        Travels.REQUEST,
        publish=((Role.BUILDER, Own.PARTY),),
        subscribe=((Role.MODULE, Own.KEY), (Role.SUPERVISOR, Own.KEY)),
    ),
    Row(READY, Travels.CORE, publish=((Role.SUPERVISOR, Own.PARTY),), subscribe=_WOKEN),
    Row(
        STARTUP_SPEC,  # its key is the name of the Startup Supervisor
        Travels.REQUEST,
        publish=((Role.OPERATOR, Own.PARTY),),
        subscribe=((Role.SUPERVISOR, Own.KEY),),
    ),
    Row(STARTUP_RECONCILED, Travels.CORE, publish=((Role.SUPERVISOR, Own.PARTY),), subscribe=_WOKEN),
    *(
        Row(
            f"{SYNAPSE}.{verb}",
            Travels.REQUEST,
            publish=_ASKS,
            subscribe=(*_INFERS, (Role.INFERENCE, Own.ANY_NODE)),
        )
        for verb in SYNAPSE_WORK
    ),
    *(
        Row(f"{SYNAPSE}.{verb}", Travels.REQUEST, publish=((Role.OPERATOR, Own.PARTY),), subscribe=_INFERS)
        for verb in SYNAPSE_CARE
    ),
    Row(f"{SYNAPSE}.Artifact", Travels.REQUEST, publish=_PLACES, subscribe=_INFERS),
    Row(SYNAPSE_STATUS, Travels.CORE, publish=_INFERS, subscribe=(*_CHOOSES, (Role.GATEWAY, Own.NOTHING))),
    # The party is the module that asks, the key the lane.
    *(Row(f"{WORKER}.{verb}", Travels.REQUEST, publish=_PLACES, subscribe=_INFERS) for verb in WORKER_VERBS),
    Row(WORKER_STATUS, Travels.CORE, publish=_INFERS, subscribe=_CHOOSES),
)


def travels(type: str) -> Travels | None:  # noqa: A002
    """How a type travels; None for one that the table does not hold (a module's own)."""
    for row in TABLE:
        if row.type == type or (row.type.endswith(".*") and type.rpartition(".")[0] == row.type[:-2]):
            return row.travels
    return None
