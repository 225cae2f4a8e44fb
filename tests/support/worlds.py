"""The same small mesh on each kind of bus: one server, one with authorization, a leaf, a leaf with
authorization.

    async with world("guarded", tmp_path) as mesh, mesh.bus("nightly") as nightly: ...

On a leaf, the Builder of node `alpha` is at the leaf's server (which is alpha's) and everybody else at the
hub's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nats.aio.msg import Msg

from bakemesh.bus import Bus, Credentials
from bakemesh.bus.errors import NoResponder, RequestTimeout
from bakemesh.bus.keys import UserKey, make_user_key
from bakemesh.bus.server_config import Join
from bakemesh.protocol.rights import Grant, authorization_block
from bakemesh.protocol.subjects import Role
from support.nats import MESH, connect, hub_and_leaf, identities, server
from support.waiting import eventually

KINDS = ("open", "guarded", "leaf", "guarded-leaf")


@dataclass
class World:
    """Where each party connects, and as whom."""

    kind: str
    url: str
    leaf_url: str | None
    grants: dict[str, Grant]
    keys: dict[str, UserKey]

    @property
    def guarded(self) -> bool:
        """Whether the servers know the identities."""
        return self.kind.startswith("guarded")

    def bus(
        self, party: str, *, near: bool | None = None, **settings: object
    ) -> AbstractAsyncContextManager[Bus]:
        """A bus as that identity; `near`: at the leaf (the default for the Builder of alpha)."""
        grant = self.grants[party]
        at_leaf = party == "builder-alpha" if near is None else near
        url = self.leaf_url if at_leaf and self.leaf_url else self.url
        given = {"credentials": Credentials(nkey_seed=self.keys[party].seed)} if self.guarded else {}
        name = "builder" if grant.role is Role.BUILDER else party
        return connect(url, name=name, node_id=grant.node_id or "local", identity=party, **given, **settings)

    async def settle(self, builder: Bus, other: Bus) -> None:
        """Returns when either sees what the other has subscribed so far: over a leaf that takes a moment.

        The link passes subscriptions on in their order, so the last one stands for those before it.
        """
        if self.leaf_url is None:
            return
        arrived = asyncio.Event()

        async def pong(msg: Msg) -> None:
            await builder.link.send(msg.reply, b"pong")

        async def note(_msg: Msg) -> None:
            arrived.set()

        async def heard() -> bool:
            try:
                await other.link.ask("$SRV.PING.settle", b"", 0.2)
            except (NoResponder, RequestTimeout):
                return False
            return True

        async def told() -> bool:
            await builder.link.send(f"_INBOX.{other.settings.party}.settle", b"")
            return arrived.is_set()

        near = await builder.link.listen("$SRV.PING.settle", pong)
        far = await other.link.listen(f"_INBOX.{other.settings.party}.settle", note)
        await eventually(heard, what="the Builder heard across the link")
        await eventually(told, what="the other heard across the link")
        await builder.link.unlisten(near)
        await other.link.unlisten(far)


@asynccontextmanager
async def world(kind: str, folder: Path) -> AsyncIterator[World]:
    """A mesh of that kind with the identities of `support.nats.identities()`."""
    grants, keys = identities()
    if kind == "open":
        async with server(folder) as one:
            yield World(kind, one.url, None, grants, keys)
    elif kind == "guarded":
        block = authorization_block(grants.values(), mesh=MESH)
        async with server(folder, authorization=block) as one:
            yield World(kind, one.url, None, grants, keys)
    elif kind == "leaf":
        async with hub_and_leaf(folder, node_id="alpha") as pair:
            yield World(kind, pair.hub.url, pair.leaf.url, grants, keys)
    elif kind == "guarded-leaf":
        key = make_user_key()
        link = Grant(Role.LEAF, "leaf-alpha", key.public)
        hub_block = authorization_block([*grants.values(), link], mesh=MESH)
        near = [one if one.role is Role.BUILDER else replace(one, node_id="alpha") for one in grants.values()]
        async with hub_and_leaf(
            folder,
            node_id="alpha",
            hub_settings={"authorization": hub_block},
            join=lambda url: Join(url, nkey_seed=key.seed),
            authorization=authorization_block(near, mesh=MESH),
            probe={"identity": "ops", "credentials": Credentials(nkey_seed=keys["ops"].seed)},
        ) as pair:
            yield World(kind, pair.hub.url, pair.leaf.url, grants, keys)
    else:
        raise ValueError(kind)
