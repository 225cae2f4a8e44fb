"""What each identity may publish and subscribe on the server, generated from the subject table.

`permissions` gives the rights of one identity, `authorization_block` the text of a whole server's. Three
things are rights that the table cannot hold: the JetStream and KV requests a role needs, the private inbox,
and service discovery. They are derived here from what the role may `read`.

Guaranteed: a reverse stream is written by its node's Builder alone; recipes, pushes and controls carry the
name of who sent them; a Supervisor reads its own bakes alone, because the one filter is part of the
`CONSUMER.CREATE` subject and because only operators can learn the (random) name of another's consumer.

Not guaranteed: a Builder makes and changes the hub's streams, and the server does not look into those
requests, so whoever holds a Builder's key is trusted with the mesh's stores. A leaf link's key is trusted
with everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from bakemesh.protocol import names, storage, subjects
from bakemesh.protocol.errors import NameRefused
from bakemesh.protocol.subjects import ANY, BAKE, NO_KEY, Own, Rights, Role, Row, Travels

API = "$JS.API"
HUB_DOMAIN = "hub"
HUB_API = f"$JS.{HUB_DOMAIN}.API"  # the hub's JetStream as a client of a leaf names it
BUILDER_PREFIX = "builder-"
STARTUP_PREFIX = "startup-"

_NKEY = re.compile(r"U[A-Z2-7]{55}")
_READS = f"{BAKE}.*"  # one filter covers Status and outcomes; Data has a stream of its own


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects that an identity may publish and subscribe. `deny_publish` wins over `publish`.

    `allow_responses`: components answer what they were asked, and may publish into nobody's inbox otherwise.
    Builders may publish every `_INBOX.` anyway.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    allow_responses: bool = False
    deny_publish: tuple[str, ...] = ()
    deny_subscribe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """One identity of a server: `nkey` is its public user key. `node_id`, `triggers` as in `permissions`."""

    role: Role
    name: str
    nkey: str
    node_id: str | None = None
    triggers: tuple[str, ...] | None = None


def builder_name(node_id: str) -> str:
    """The party under which a node's Builder speaks."""
    return f"{BUILDER_PREFIX}{node_id}"


def startup_name(node_id: str) -> str:
    """The party under which a node's Startup Supervisor speaks."""
    return f"{STARTUP_PREFIX}{node_id}"


def inbox_prefix(name: str) -> str:
    """Where an identity's answers arrive; nobody else may subscribe below it."""
    return f"_INBOX.{name}"


def permissions(
    role: Role,
    name: str,
    *,
    mesh: str,
    node_id: str | None = None,
    triggers: tuple[str, ...] | None = None,
) -> Permissions:
    """The rights of one identity.

    `name` is its party. `node_id`: a Builder's own node; for others the node on whose leaf server they log
    in, None on a shared server or the hub. `triggers`: the message types that wake a module, or a Supervisor
    that is a component; None: a module may be woken by every type that is not the contract's, a Supervisor by
    none. Raises NameRefused for a name that is no token or that belongs to another role.
    """
    names.check("mesh", mesh)
    _check_name(role, name, node_id)
    if role is Role.LEAF:
        return Permissions(publish=(">",), subscribe=(">",))
    publish, subscribe, deny = list[str](), [f"{inbox_prefix(name)}.>"], list[str]()
    deaf = list[str]()
    for row in subjects.TABLE:
        publish += [_subject(mesh, row, own, name, node_id) for own in _owns(row.publish, role)]
        subscribe += [_subject(mesh, row, own, name, node_id) for own in _owns(row.subscribe, role)]
    if role is Role.DASHBOARD:
        publish += _reads_status(mesh)
    elif role in (Role.MODULE, Role.INFERENCE):
        publish += _reads_nodes(mesh)
    elif role is not Role.GATEWAY:
        publish += ["$SRV.>"]
        publish += _reads_bakes(role, name, mesh)
        publish += _counts_ids(name, mesh)
    if role is Role.BUILDER:
        assert node_id is not None
        publish += ["_INBOX.>", *_keeps_streams(mesh, node_id), *_takes_inbox(mesh, node_id)]
        subscribe += ["$SRV.>"]
        # Health probes of its components, on subjects of their own: what is no type of the contract.
        publish.append(subjects.pattern(mesh, ">", node_id=node_id, party=name))
        deny += [
            subjects.pattern(mesh, row.type, node_id=node_id, party=name)
            for row in subjects.TABLE
            if not _owns(row.publish, role)
        ]
    elif role is Role.INFERENCE:
        # Streams have many answers, and a caller that is gone shows by an answer that asks for one.
        publish.append("_INBOX.>")
        subscribe += ["$SRV.>", subjects.pattern(mesh, "Psyclone.Component.>", key=name)]
    elif role is Role.GATEWAY:  # it is a service, and maybe a component; strangers' requests end here
        subscribe += ["$SRV.>", subjects.pattern(mesh, "Psyclone.Component.>", key=name)]
    elif role not in (Role.DASHBOARD, Role.MODULE):
        # An inbox's consumer has a known name, so its messages are closed by denying the stream as a whole.
        inboxes = [storage.inbox_stream(mesh)]
        if node_id is not None:
            inboxes.append(storage.leaf_inbox_stream(mesh, node_id))
        deny += [f"{api}.CONSUMER.MSG.NEXT.{inbox}.*" for api in (API, HUB_API) for inbox in inboxes]
    if role in (Role.MODULE, Role.SUPERVISOR):
        publish += _posts(mesh, name, triggers if triggers is not None or role is Role.SUPERVISOR else (">",))
        deny += [
            subjects.pattern(mesh, row.type, party=name)
            for row in subjects.TABLE
            if not _owns(row.publish, role)
        ]
        subscribe += [subjects.pattern(mesh, type_) for type_ in triggers or ()]
        if triggers is not None:  # what its Builder asks it on subjects of its own, its health
            subscribe.append(subjects.pattern(mesh, ">", key=name))
            deaf += [
                subjects.pattern(mesh, row.type, key=name)
                for row in subjects.TABLE
                if not _owns(row.subscribe, role) and row.type not in triggers
            ]
        if role is Role.MODULE and triggers is None:
            subscribe.append(subjects.pattern(mesh, ">"))
            deaf += [
                subjects.pattern(mesh, row.type) for row in subjects.TABLE if not _owns(row.subscribe, role)
            ]
    if role is Role.SUPERVISOR and name.startswith(STARTUP_PREFIX):
        assert node_id is not None  # see _check_name
        publish += _writes_key(storage.nodes_bucket(mesh), storage.ready_key(node_id))
        publish += _writes_key(storage.cohorts_bucket(mesh), "*")  # a PsySpec's cohorts
        subscribe += ["$SRV.>"]  # it is a service; it may answer by allow_responses
    if role is Role.OPERATOR:
        publish += _inspects() + _writes_key(storage.cohorts_bucket(mesh), "*")
    return Permissions(
        _unique(publish),
        _unique(subscribe),
        allow_responses=role in (Role.MODULE, Role.SUPERVISOR, Role.GATEWAY),
        deny_publish=_unique(deny),
        deny_subscribe=_unique(deaf),
    )


def authorization_block(identities: Iterable[Grant], *, mesh: str) -> str:
    """The `authorization` block of a nats-server's configuration: one nkey user an identity.

    Raises NameRefused for a bad name or key, and where two identities share a name or a key: they would share
    an inbox, and one could be taken for the other.
    """
    users: list[str] = []
    seen: dict[str, str] = {}
    for grant in identities:
        if not _NKEY.fullmatch(grant.nkey):
            raise NameRefused("nkey", grant.nkey[:80], "must be a public user key: 'U' and 55 of A-Z, 2-7")
        rights = permissions(
            grant.role, grant.name, mesh=mesh, node_id=grant.node_id, triggers=grant.triggers
        )
        for what, value in (("name", grant.name), ("nkey", grant.nkey)):
            if other := seen.get(value):
                raise NameRefused(what, value, f"is used twice, by {other} and by {grant.role} {grant.name}")
            seen[value] = f"{grant.role} {grant.name}"
        users.append(_user(grant, rights))
    return "authorization {\n  users = [\n" + "".join(users) + "  ]\n}\n"


def _check_name(role: Role, name: str, node_id: str | None) -> None:
    names.check("party", name)
    if node_id is not None:
        names.check("NodeID", node_id)
    if role is Role.BUILDER:
        if node_id is None or name != builder_name(node_id):
            raise NameRefused("Builder", name, f"must be named {builder_name(node_id or '<NodeID>')}")
        names.check_own_node_id(node_id)
        return
    if role is Role.INFERENCE and node_id is None:
        raise NameRefused(str(role), name, "needs the NodeID that it serves on")
    if role is Role.LEAF:
        return
    if name.startswith(BUILDER_PREFIX):
        raise NameRefused(str(role), name, f"names that begin {BUILDER_PREFIX!r} are those of Builders")
    own_startup = role is Role.SUPERVISOR and node_id is not None and name == startup_name(node_id)
    if name.startswith(STARTUP_PREFIX) and not own_startup:
        raise NameRefused(
            str(role),
            name,
            f"names that begin {STARTUP_PREFIX!r} are those of Startup Supervisors on their node",
        )


def _owns(rights: Rights, role: Role) -> list[Own]:
    return [own for holder, own in rights if holder is role]


def _subject(mesh: str, row: Row, own: Own, name: str, node_id: str | None) -> str:
    if own is Own.NODE:
        assert node_id is not None  # see _check_name
        return subjects.pattern(mesh, row.type, node_id=node_id)
    if own is Own.ANY_NODE:
        return subjects.pattern(mesh, row.type, node_id=subjects.ANY_NODE)
    if own is Own.KEY:
        return subjects.pattern(mesh, row.type, key=name)
    return subjects.pattern(mesh, row.type, party=name if own is Own.PARTY else ANY)


def _reads_status(mesh: str) -> list[str]:
    """All that a dashboard may send: reading the hub's Status."""
    stream = storage.hub_status_stream(mesh)
    requests = (
        f"STREAM.INFO.{stream}",
        f"CONSUMER.CREATE.{stream}.*.{subjects.pattern(mesh, _READS)}",
        f"CONSUMER.MSG.NEXT.{stream}.*",
    )
    return [f"{api}.{request}" for api in (API, HUB_API) for request in requests]


def _reads_bakes(role: Role, name: str, mesh: str) -> list[str]:
    """Reading bakes from the streams, and the nodes bucket.

    A node's stream is one token, so `*` stands for all; what closes a stream to others is the filter.
    """
    filters = {
        subjects.pattern(mesh, _READS, party=name if own is Own.PARTY else ANY)
        for row in subjects.TABLE
        if row.travels in (Travels.STATUS, Travels.DATA)
        for own in _owns(row.read, role)
    }
    # One bake's Data is read with its own type as the filter, all its Status with the type pattern: `*` takes
    # both.
    requests = [
        "STREAM.INFO.*",
        *(f"CONSUMER.CREATE.*.*.{wanted}" for wanted in sorted(filters)),
        "CONSUMER.MSG.NEXT.*.*",
    ]
    out = [f"{api}.{request}" for api in (API, HUB_API) for request in requests]
    return [*out, *_reads_nodes(mesh)]


def _reads_nodes(mesh: str) -> list[str]:
    """Reading the nodes bucket and the cohorts."""
    out: list[str] = []
    for bucket in (storage.nodes_bucket(mesh), storage.cohorts_bucket(mesh)):
        stream = storage.bucket_stream(bucket)
        requests = (
            f"STREAM.INFO.{stream}",
            f"CONSUMER.CREATE.{stream}.*.{storage.bucket_subject(bucket, '>')}",
            f"CONSUMER.MSG.NEXT.{stream}.*",
            f"STREAM.MSG.GET.{stream}",
        )
        out += [f"{api}.{request}" for api in (API, HUB_API) for request in requests]
    return out


def _posts(mesh: str, name: str, triggers: tuple[str, ...] | None) -> list[str]:
    """A component's own posts, and reading the stored ones that wake it. Posts are open: whoever may read the
    stream may read another's consumer there."""
    stream = storage.posts_stream(mesh)
    filters = [">" if each == ">" else subjects.pattern(mesh, each) for each in triggers or ()]
    requests = [
        f"STREAM.INFO.{stream}",
        f"CONSUMER.INFO.{stream}.*",
        f"CONSUMER.MSG.NEXT.{stream}.*",
        *(f"CONSUMER.CREATE.{stream}.*.{each}" for each in filters),
    ]
    acks = [f"$JS.ACK.{stream}.>", f"$JS.ACK.*.*.{stream}.>"]
    own = subjects.pattern(mesh, ">", party=name, key=NO_KEY)
    return [own, *(f"{api}.{each}" for api in (API, HUB_API) for each in requests), *acks]


def _counts_ids(name: str, mesh: str) -> list[str]:
    """Minting: the identity's own key of the counters, also as a leaf's client writes it."""
    bucket = storage.ids_bucket(mesh)
    return [
        *_writes_key(bucket, name),
        *(f"{api}.STREAM.MSG.GET.{storage.bucket_stream(bucket)}" for api in (API, HUB_API)),
    ]


def _writes_key(bucket: str, key: str) -> list[str]:
    subject = storage.bucket_subject(bucket, key)
    return [subject, f"{HUB_API}.{subject}"]


def _keeps_streams(mesh: str, node_id: str) -> list[str]:
    """A Builder's stores: its own streams, the hub's, and its keys of the nodes bucket."""
    own = (
        storage.status_stream(mesh, node_id),
        storage.data_stream(mesh, node_id),
        storage.leaf_inbox_stream(mesh, node_id),
    )
    bakes = (storage.hub_status_stream(mesh), storage.hub_data_stream(mesh))
    buckets = (storage.nodes_bucket(mesh), storage.ids_bucket(mesh), storage.cohorts_bucket(mesh))
    shared = (storage.inbox_stream(mesh), storage.posts_stream(mesh))
    hub = (*bakes, *shared, *(storage.bucket_stream(bucket) for bucket in buckets))
    made = ("STREAM.CREATE", "STREAM.UPDATE", "STREAM.INFO", "STREAM.MSG.GET")
    out = [f"{api}.INFO" for api in (API, HUB_API)]
    out += [
        f"{api}.{verb}.{stream}" for api in (API, f"$JS.{node_id}.API") for stream in own for verb in made
    ]
    own_more = ("STREAM.PURGE.{}", "CONSUMER.CREATE.{}.*.>", "CONSUMER.MSG.NEXT.{}.*")
    out += [
        f"{api}.{more.format(stream)}"
        for api in (API, f"$JS.{node_id}.API")
        for stream in own
        for more in own_more
    ]
    out += [f"{api}.{verb}.{stream}" for api in (API, HUB_API) for stream in hub for verb in made]
    out += [f"{api}.STREAM.PURGE.{stream}" for api in (API, HUB_API) for stream in bakes]
    for key in (node_id, storage.claim_key(node_id), "lock.*"):
        out += _writes_key(storage.nodes_bucket(mesh), key)
    return out


def _takes_inbox(mesh: str, node_id: str) -> list[str]:
    """A Builder's durable consumer, named as its node, with one filter: on the hub's inbox and its leaf's."""
    wanted = subjects.pattern(mesh, "Psyclone.Builder.>", node_id=node_id)
    out: list[str] = []
    for inbox, apis in (
        (storage.inbox_stream(mesh), (API, HUB_API)),
        (storage.leaf_inbox_stream(mesh, node_id), (API, f"$JS.{node_id}.API")),
    ):
        for api in apis:
            out += [
                f"{api}.CONSUMER.CREATE.{inbox}.{node_id}.{wanted}",
                f"{api}.CONSUMER.INFO.{inbox}.{node_id}",
                f"{api}.CONSUMER.MSG.NEXT.{inbox}.{node_id}",
            ]
        # Both forms of an acknowledgement's subject; the longer one names domain and account first.
        out += [f"$JS.ACK.{inbox}.{node_id}.>", f"$JS.ACK.*.*.{inbox}.{node_id}.>"]
    return out


def _inspects() -> list[str]:
    """What only an operator may ask: it tells the names of other people's consumers."""
    requests = (
        "INFO",
        "STREAM.NAMES",
        "STREAM.LIST",
        "CONSUMER.NAMES.*",
        "CONSUMER.LIST.*",
        "CONSUMER.INFO.*.*",
    )
    return [f"{api}.{request}" for api in (API, HUB_API) for request in requests]


def _unique(subjects_: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(subjects_))


def _user(grant: Grant, rights: Permissions) -> str:
    responses = '\n      allow_responses: { max: 1, expires: "1m" }' if rights.allow_responses else ""
    allowed, denied = _list(rights.subscribe), _list(rights.deny_subscribe)
    return (
        f"    # {grant.role} {grant.name}\n"
        f"    {{ nkey: {grant.nkey}, permissions: {{\n"
        f"      publish: {{ allow: {_list(rights.publish)}, deny: {_list(rights.deny_publish)} }}\n"
        f"      subscribe: {{ allow: {allowed}, deny: {denied} }}{responses}\n"
        f"    }} }}\n"
    )


def _list(values: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"
