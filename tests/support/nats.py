"""Real nats-servers for tests: one, or a hub with a leaf whose link can be cut, and connections to them.

async with server(tmp_path) as nats, connect(nats.url, name="nightly") as bus: ...
async with hub_and_leaf(tmp_path) as pair: await pair.link.cut(); ...; await pair.link.heal()
async with guarded(tmp_path) as mesh, mesh.connect("nightly") as bus: ...      # authorization and nkeys
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bakemesh.bus import Bus, BusSettings, Credentials
from bakemesh.bus.keys import UserKey, make_user_key
from bakemesh.bus.server import EmbeddedServer
from bakemesh.bus.server_config import Join
from bakemesh.protocol.rights import Grant, authorization_block, builder_name
from bakemesh.protocol.subjects import Role
from support.waiting import eventually

MESH = "psyclone"


@asynccontextmanager
async def server(
    folder: Path, *, node_id: str = "hub-node", **settings: Any
) -> AsyncIterator[EmbeddedServer]:
    """A running server in `folder`/`node_id`; `settings` are EmbeddedServer's. It has url, kill(), start(),
    restart().
    """
    running = EmbeddedServer(folder / f"nats-{node_id}", node_id, **settings)
    try:
        await running.start()
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def connect(
    url: str, *, name: str = "tester", node_id: str = "local", **settings: Any
) -> AsyncIterator[Bus]:
    """A bus; `settings` are those of BusSettings (identity, mesh, credentials, timeouts …)."""
    bus = await Bus.connect(BusSettings(servers=(url,), name=name, node_id=node_id, **settings))
    try:
        yield bus
    finally:
        await bus.close()


class TcpLink:
    """A TCP proxy to `target` (host, port) that can be cut: `cut` resets what runs and refuses what comes,
    `stall` swallows everything without a word (a black hole), `heal` undoes either."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.port = 0

    @property
    def url(self) -> str:
        """Its own address."""
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listens; the port stays the same over cut and heal."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Resets every connection and refuses new ones."""
        if self._server:
            self._server.close()
            self._server = None
        await self._drop()

    def stall(self) -> None:
        """Connections stay open and nothing passes any more."""
        self._open.clear()

    async def heal(self) -> None:
        """Lets everything pass again."""
        self._open.set()
        if self._server is None:
            await self.start()

    async def close(self) -> None:
        """Ends it."""
        self._open.set()
        await self.cut()

    async def _drop(self) -> None:
        for writer in list(self._writers):
            if writer.transport:
                writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            back, onward = await asyncio.open_connection(*self._target)
            self._writers.add(onward)
            both = [asyncio.ensure_future(self._pump(*pair)) for pair in ((reader, onward), (back, writer))]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in both:
                    one.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # cut, or the other side is gone: both ends are closed below
        finally:
            for one in (writer, onward):
                if one is not None:
                    self._writers.discard(one)
                    one.close()
                    with contextlib.suppress(OSError):
                        await one.wait_closed()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            await self._open.wait()
            writer.write(chunk)
            await writer.drain()


@dataclass
class HubAndLeaf:
    """A hub, a leaf of the node `leaf.config.name`, and the link between them."""

    hub: EmbeddedServer
    leaf: EmbeddedServer
    link: TcpLink
    probe: dict[str, Any] = field(default_factory=dict)  # BusSettings of who looks whether the link is up

    async def cut(self) -> None:
        """Cuts the link and returns when the leaf's clients see the hub no more."""
        await self.link.cut()
        await eventually(self._apart, what="the leaf without its hub")

    async def heal(self) -> None:
        """Heals the link and returns when the leaf's clients see the hub again."""
        await self.link.heal()
        await eventually(self.joined, what="the leaf joined to its hub")

    async def joined(self) -> bool:
        """Whether the hub's JetStream answers at the leaf."""
        from bakemesh.bus.errors import BusError

        async with connect(self.leaf.url, name="probe", **self.probe) as bus:
            try:
                await bus.hub_api.request("INFO", timeout=1)
            except BusError:
                return False
            return True

    async def _apart(self) -> bool:
        return not await self.joined()


@asynccontextmanager
async def hub_and_leaf(
    folder: Path,
    *,
    node_id: str = "edge",
    hub_settings: dict[str, Any] | None = None,
    join: Callable[[str], Join] = Join,
    probe: dict[str, Any] | None = None,
    **leaf_settings: Any,
) -> AsyncIterator[HubAndLeaf]:
    """A hub and a leaf of node `node_id`, joined. `join` makes the leaf's link out of the address; `probe`
    are BusSettings of who looks whether it is up.
    """
    async with server(folder, **(hub_settings or {})) as hub:
        link = TcpLink(("127.0.0.1", int(hub.leaf_url.rpartition(":")[2])))
        await link.start()
        try:
            async with server(folder, node_id=node_id, join=join(link.url), **leaf_settings) as leaf:
                pair = HubAndLeaf(hub, leaf, link, probe or {})
                await eventually(pair.joined, what="the leaf joined to its hub")
                yield pair
        finally:
            await link.close()


@dataclass
class Guarded:
    """A server with the generated authorization, and the key of every identity by its name."""

    server: EmbeddedServer
    grants: dict[str, Grant]
    keys: dict[str, UserKey]

    @asynccontextmanager
    async def connect(self, party: str, *, url: str | None = None, **settings: Any) -> AsyncIterator[Bus]:
        """A bus as that identity."""
        grant = self.grants[party]
        name = "builder" if grant.role is Role.BUILDER else party
        credentials = Credentials(nkey_seed=self.keys[party].seed)
        async with connect(
            url or self.server.url,
            name=name,
            node_id=grant.node_id or "local",
            identity=party,
            credentials=credentials,
            **settings,
        ) as bus:
            yield bus


def identities(
    *,
    builders: Iterable[str] = ("alpha", "beta"),
    supervisors: Iterable[str] = ("nightly", "other"),
    operators: Iterable[str] = ("ops",),
    dashboards: Iterable[str] = ("board",),
    witnesses: Iterable[str] = (),
    modules: Iterable[str] = (),
    inference: Mapping[str, str] | None = None,
    gateways: Iterable[str] = (),
    triggers: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[dict[str, Grant], dict[str, UserKey]]:
    """Grants and keys of a small mesh, by name. `inference`: the NodeID of each synapse module and lane host.
    `triggers`: the types that may wake a party; see Grant.
    """
    woken = triggers or {}
    rows = [(Role.BUILDER, builder_name(node), node) for node in builders]
    rows += [(Role.SUPERVISOR, name, None) for name in supervisors]
    rows += [(Role.OPERATOR, name, None) for name in operators]
    rows += [(Role.DASHBOARD, name, None) for name in dashboards]
    rows += [(Role.MODULE, name, None) for name in modules]
    rows += [(Role.INFERENCE, name, node) for name, node in (inference or {}).items()]
    rows += [(Role.GATEWAY, name, None) for name in gateways]
    # A test's own eyes and forger's hand: like a leaf's link it may do everything.
    rows += [(Role.LEAF, name, None) for name in witnesses]
    keys = {name: make_user_key() for _, name, _ in rows}
    grants = {name: Grant(role, name, keys[name].public, node, woken.get(name)) for role, name, node in rows}
    return grants, keys


@asynccontextmanager
async def guarded(folder: Path, *, mesh: str = MESH, **names: Any) -> AsyncIterator[Guarded]:
    """A server that knows the identities of `identities(**names)` and nobody else."""
    grants, keys = identities(**names)
    block = authorization_block(grants.values(), mesh=mesh)
    async with server(folder, authorization=block) as running:
        yield Guarded(running, grants, keys)
