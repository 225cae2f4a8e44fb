"""A small mesh as it is meant to be run: a server with the generated authorization, Builders, Supervisors
with keys.

async with mesh(tmp_path) as net, net.supervisor("boss") as boss:
    bake = await boss.bake(xml, node="alpha")

`net.nats` is the server (kill, start), `net.node` the first Builder, `net.nodes` all of them by id,
`net.connect("ops")` a bus that may see every Status. A mesh without authorization is the exception:
`mesh(tmp_path, guard=False)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakemesh.bus import Bus, Credentials
from bakemesh.bus.keys import UserKey
from bakemesh.bus.server import EmbeddedServer
from bakemesh.protocol.rights import Grant, authorization_block, builder_name
from bakemesh.supervisor import Supervisor
from support.builder import RunningBuilder, builder
from support.nats import MESH, connect, identities, server


@dataclass
class Mesh:
    """What `mesh` gives."""

    folder: Path
    nats: EmbeddedServer
    keys: dict[str, UserKey]
    grants: dict[str, Grant]
    nodes: dict[str, RunningBuilder] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.nats.url

    @property
    def node(self) -> RunningBuilder:
        """The first Builder."""
        return next(iter(self.nodes.values()))

    def credentials(self, party: str) -> Credentials | None:
        """A party's key; None on an open server."""
        return Credentials(nkey_seed=self.keys[party].seed) if self.keys else None

    def key_flags(self, party: str) -> tuple[str, ...]:
        """Flags that give a process the party's key."""
        if not self.keys:
            return ()
        path = self.folder / f"{party}.nk"
        path.touch(mode=0o600)
        path.write_text(self.keys[party].seed)
        return ("--creds", str(path))

    def supervisor(self, name: str, **settings: Any) -> Supervisor:
        """The SDK, as this Supervisor (or operator)."""
        return Supervisor.connect(
            nats=settings.pop("nats", self.url), name=name, credentials=self.credentials(name), **settings
        )

    @asynccontextmanager
    async def connect(self, party: str, **settings: Any) -> AsyncIterator[Bus]:
        """A bus with the party's rights."""
        node = self.grants[party].node_id if self.grants else None
        async with connect(
            self.url,
            name=party,
            identity=party,
            node_id=node or "local",
            credentials=self.credentials(party),
            **settings,
        ) as bus:
            yield bus

    @asynccontextmanager
    async def builder(self, node_id: str, *flags: str) -> AsyncIterator[RunningBuilder]:
        """One more Builder, ready."""
        given = (*self.key_flags(builder_name(node_id)), *flags)
        async with builder(self.folder, self.url, *given, node_id=node_id) as running:
            self.nodes[node_id] = running
            yield running


@asynccontextmanager
async def mesh(
    folder: Path,
    *flags: str,
    nodes: Iterable[str] = ("alpha",),
    supervisors: Iterable[str] = ("boss", "other"),
    operators: Iterable[str] = ("ops",),
    witnesses: Iterable[str] = (),
    modules: Iterable[str] = (),
    inference: Mapping[str, str] | None = None,
    guard: bool = True,
    **server_settings: Any,
) -> AsyncIterator[Mesh]:
    """A server and a Builder a node, each with `flags`. With `guard` the server knows these parties alone."""
    nodes = list(nodes)
    grants: dict[str, Grant] = {}
    keys: dict[str, UserKey] = {}
    if guard:
        builders = {*nodes, "alpha", "beta", "ghost"}
        grants, keys = identities(
            builders=sorted(builders),
            supervisors=supervisors,
            operators=operators,
            witnesses=witnesses,
            modules=modules,
            inference=inference,
        )
        server_settings["authorization"] = authorization_block(grants.values(), mesh=MESH)
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(server(folder, **server_settings))
        made = Mesh(folder, nats, keys, grants)
        for node_id in nodes:
            await stack.enter_async_context(made.builder(node_id, *flags))
        yield made
