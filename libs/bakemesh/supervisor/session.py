"""A Supervisor: it mints recipes, sends them, and hears of its bakes.

Guarantees: one subscription a message type for all bakes of this Supervisor, made before the first recipe
is sent, so that no Status is missed; closing ends everything that was begun here (iterators end with
Closed, nothing is left running) while the bakes themselves go on. Left out: what a bake offers (`bake`),
where ids come from (`mint`), how recipes get to their nodes (`sending`), which streams are read (`streams`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakSet

from bakemesh.bus import Bus, BusSettings, Credentials, Tls
from bakemesh.bus.errors import BusError
from bakemesh.protocol import names
from bakemesh.protocol.builder.messages import Performance, Result
from bakemesh.protocol.builder.node import ComponentVerb, NodeVerb
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import operate
from bakemesh.supervisor.bake import Bake
from bakemesh.supervisor.cohort import Cohort, read_cohorts
from bakemesh.supervisor.control import ControlSequence
from bakemesh.supervisor.directory import Directory
from bakemesh.supervisor.errors import Closed
from bakemesh.supervisor.find import locate
from bakemesh.supervisor.live import LiveStatus
from bakemesh.supervisor.mint import CounterMint, FolderMint, Mint
from bakemesh.supervisor.nodes import ANY_NODE, NodeInfo
from bakemesh.supervisor.notices import LiveNotices, NoticeReader
from bakemesh.supervisor.operate import ComponentInfo
from bakemesh.supervisor.recipe import Order, Prepared
from bakemesh.supervisor.sending import Sending
from bakemesh.supervisor.streams import ReverseStreams

RESULT_S = 5.0


class _Reader(Protocol):
    async def release(self) -> None: ...


Tracked = TypeVar("Tracked", bound=_Reader)


class Supervisor:
    """One Supervisor on one bus; an async context manager.

    `bus`: one that exists, which is left open at the end, or the settings of a connection of one's own
    (`Supervisor.connect` makes them). `name` is what recipes carry and what the server knows this identity
    by. `mint` gives RecipeID numbers; default: the mesh's counter, in blocks kept in the folder `state` where
    one is given.
    """

    def __init__(
        self, bus: Bus | BusSettings, name: str, mint: Mint | None = None, *, state: Path | None = None
    ) -> None:
        self.name = names.check("Supervisor", name)
        self.controls = ControlSequence()
        self._settings = bus if isinstance(bus, BusSettings) else None
        self._bus = None if isinstance(bus, BusSettings) else bus
        self._given_mint, self._state = mint, state
        self._live: LiveStatus | None = None
        self._readers: WeakSet[_Reader] = WeakSet()
        self._sending: Sending | None = None
        self._opened = self._closed = False

    @classmethod
    def connect(
        cls,
        nats: str | Sequence[str] = "nats://127.0.0.1:4222",
        name: str = "supervisor",
        *,
        mesh: str = "psyclone",
        state: str | Path | None = None,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        connect_timeout_s: float = 5.0,
    ) -> Self:
        """A Supervisor with a connection of its own, made on entering `async with` (or by `open`).

        `state`: a folder where RecipeIDs are reserved, so that minting goes on while the bus is out of reach.
        Entering raises BusUnreachable, AccessDenied, BadCredentials.
        """
        names.check("Supervisor", name)
        settings = BusSettings(
            servers=tuple(part.strip() for part in nats.split(",")) if isinstance(nats, str) else tuple(nats),
            mesh=mesh,
            name=name,
            credentials=credentials,
            tls=tls,
            connect_timeout_s=connect_timeout_s,
        )
        return cls(settings, name, state=None if state is None else Path(state))

    async def open(self) -> Self:
        """Connects and subscribes. Raises the bus's errors; nothing is left open then."""
        if self._opened:
            raise Closed("this Supervisor was opened before; make another one")
        self._opened = True
        if self._settings is not None:
            self._bus = await Bus.connect(self._settings)
        try:
            bus = self.bus
            self.streams = ReverseStreams(bus)
            self.directory = Directory(bus)
            mint = self._given_mint or (
                FolderMint(bus, self.name, self._state) if self._state else CounterMint(bus, self.name)
            )
            self._sending = Sending(bus, self.name, mint, self.directory, self._handle, self._check_open)
            self._notices = LiveNotices(bus)
            self._live = LiveStatus(bus, self.name, self.streams, self.controls)
            await self._live.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Ends iterators and waiters with Closed, unsubscribes, and closes a connection of its own.
        Idempotent.
        """
        if self._closed:
            return
        self._closed = True
        if self._sending is not None:
            await self._sending.close()
        if self._live is not None:
            await self._live.close(f"Supervisor {self.name} was closed")
            await self._notices.close(f"Supervisor {self.name} was closed")
        for reader in list(self._readers):
            with contextlib.suppress(BusError):
                await reader.release()
        if self._settings is not None and self._bus is not None:
            await self._bus.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def bus(self) -> Bus:
        """The connection. Raises Closed before `open`."""
        if self._bus is None:
            raise Closed("not open yet: use `async with Supervisor.connect(...) as supervisor`")
        return self._bus

    @property
    def _heard(self) -> LiveStatus:
        self._check_open()
        assert self._live is not None
        return self._live

    @property
    def _sender(self) -> Sending:
        self._check_open()
        assert self._sending is not None
        return self._sending

    # -- recipes

    async def bake(
        self,
        xml: str,
        *,
        node: str | None = ANY_NODE,
        node_id: str | None = None,
        params: Mapping[str, Any] | None = None,
        expires_s: float | None = None,
        parent: str | None = None,
        parent_supervisor: str | None = None,
        result_timeout_s: float = RESULT_S,
    ) -> Bake:
        """Mints a RecipeID, sends the recipe and waits for the Builder's Result, at most `result_timeout_s`.

        `node`: a name or id, or `any`: the least loaded node that takes recipes. `node_id`: an id that is
        sent to unseen. A node that does not answer in time leaves the bake `waiting`: its recipe is stored
        and begins when the node is there, unless `expires_s` seconds have passed by then.

        Raises RecipeRejected (with every problem), MessageTooLarge, NodeUnknown, NoNodeAvailable,
        MintExhausted, NotStored, NameRefused.
        """
        order = Order(xml, params, expires_s, parent, parent_supervisor)
        order.check()
        if node_id is None and node == ANY_NODE:
            return await self._sender.bake_anywhere(order, result_timeout_s)
        prepared = await self._sender.prepare(order, await self._sender.place(node, node_id))
        return await self._sender.send(prepared, result_timeout_s, order)

    async def prepare(
        self,
        xml: str,
        *,
        node: str | None = None,
        node_id: str | None = None,
        params: Mapping[str, Any] | None = None,
        expires_s: float | None = None,
        parent: str | None = None,
        parent_supervisor: str | None = None,
    ) -> Prepared:
        """A recipe as `bake` would send it, with its RecipeID, not sent yet: for callers that keep it
        first.
        """
        order = Order(xml, params, expires_s, parent, parent_supervisor)
        order.check()
        if node_id is None and node in (None, ANY_NODE):
            return await self._sender.prepare(order, (await self.directory.least_loaded())[0])
        return await self._sender.prepare(order, await self._sender.place(node, node_id))

    async def send(
        self, prepared: Prepared, *, result_timeout_s: float = RESULT_S, again: Order | None = None
    ) -> Bake:
        """Sends a prepared recipe and waits for its Result; sending it twice is harmless.

        `again`: what to seal anew when the Builder asks for a pause (`rate_limited`): such a recipe did not
        use its RecipeID up. Raises RecipeRejected, NotStored.
        """
        return await self._sender.send(prepared, result_timeout_s, again)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"Supervisor {self.name} is closed")
        if self._live is None:
            raise Closed("not open yet: use `async with Supervisor.connect(...) as supervisor`")

    # -- bakes that exist

    async def attach(
        self,
        recipe_id: str,
        supervisor: str | None = None,
        node: str | None = None,
        *,
        node_id: str | None = None,
    ) -> Bake:
        """A bake begun elsewhere or earlier, by its RecipeID: Status and Data are replayed from the streams.

        `supervisor`: its owner, where the id alone is ambiguous; `node`: a name or id, `node_id`: an id
        that is not looked up. Another Supervisor's bake needs the rights of an operator. Raises
        BakeUnknown, AmbiguousRecipeID, NodeUnknown, AccessDenied.
        """
        self._check_open()
        names.check("RecipeID", recipe_id)
        if node_id is None and node:
            node_id = (await self.directory.find(node)).node_id
        known = [] if node_id else [each.node_id for each in await self.directory.known()]
        found = await locate(self.bus, recipe_id, supervisor=supervisor, node_id=node_id, nodes=known)
        name = _recipe_of(found.supervisor, recipe_id)
        place = self.directory.name_of(found.node_id)
        bake = self._handle(Identity(found.supervisor, name, recipe_id, place, found.node_id), suspect=True)
        await self._heard.hear_foreign(bake.identity)
        if not found.waiting:
            await bake.catch_up()
        return bake

    async def nodes(self) -> list[NodeInfo]:
        """Every node that ever reported on this mesh, with its last SystemStatus."""
        return await self.directory.nodes()

    # -- nodes, components, cohorts

    @property
    def performance(self) -> dict[str, Performance]:
        """The last Performance, by NodeID, of each node where a bake of this Supervisor runs."""
        self._check_open()
        return dict(self._notices.latest)

    def notices(self) -> NoticeReader:
        """What those nodes say from now on: Performance, and messages to cohorts that they are in."""
        self._check_open()
        return self.track(self._notices.reader())

    def cohort(self, name: str) -> Cohort:
        """A cohort by its name, which need not exist yet. Raises NameRefused."""
        return Cohort(self, name)

    async def cohorts(self) -> dict[str, tuple[str, ...]]:
        """Every cohort with the NodeIDs of its members."""
        self._check_open()
        return await read_cohorts(self.bus)

    async def components(self, node: str | None = None) -> list[ComponentInfo]:
        """Components as their nodes reported them last: of one node, or of all. Raises NodeUnknown."""
        nodes = await self.directory.nodes()
        if node is not None:
            wanted = (await self.directory.find(node)).node_id
            nodes = [each for each in nodes if each.node_id == wanted]
        return operate.components(nodes)

    async def control_component(self, verb: ComponentVerb, name: str, node: str | None = None) -> Result:
        """Restart, Stop, Start or Remove: a right of its owner and of operators.

        Raises ComponentUnknown and AmbiguousComponent, without a node; NodeUnknown, NodeUnreachable,
        ResultTimeout.
        """
        self._check_open()
        if node is None:
            node_id = operate.find_component(await self.components(), name, None).node_id
        else:
            node_id = (await self.directory.find(node)).node_id
        return await operate.control_component(self.bus, self.name, node_id, verb, name)

    async def control_node(self, verb: NodeVerb, node: str, *, timeout_s: float | None = None) -> Result:
        """Drain, Resume or Down: an operator's right. `timeout_s`: bakes that run on after so long are
        cancelled. Raises NodeUnknown, NodeUnreachable, ResultTimeout, AccessDenied.
        """
        self._check_open()
        node_id = (await self.directory.find(node)).node_id
        timeout_ms = None if timeout_s is None else round(timeout_s * 1000)
        return await operate.control_node(self.bus, self.name, node_id, verb, timeout_ms)

    async def release(self, bake: Bake) -> None:
        """See `Bake.close`."""
        key = bake.identity.key
        if self._sending is not None:
            self._sending.forget(key)
        await self._heard.drop(key)

    def track(self, reader: Tracked) -> Tracked:
        """An iterator that `close` ends."""
        self._check_open()
        self._readers.add(reader)
        return reader

    def _handle(self, identity: Identity, *, suspect: bool = False) -> Bake:
        feed = self._heard.feed(identity, suspect=suspect)
        if identity.supervisor == self.name:
            self._notices.hold(identity, feed)
        return Bake(self, identity, feed)


def _recipe_of(supervisor: str, recipe_id: str) -> str:
    """The recipe's name in a RecipeID whose Supervisor is known; '-' where it does not follow the pattern."""
    return recipe_id.removeprefix(f"{supervisor}-").rpartition("-")[0] or "-"
