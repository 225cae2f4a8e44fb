"""A small, honest Builder that follows a script: real messages over a real server, no steps, no journal.

    async def script(bake):
        await bake.start()
        await bake.chunk(b"hello")
        await bake.succeed()

    async with scripted_builder(bus, "b1", "beta", script) as builder: ...

It stores Status and Data where a Builder does, answers recipes, pushes and controls with typed Results, and
counts serial and seq. `builder.refuse` and `builder.answers` let a test decide what it answers;
`bake.serial` and `bake.seq` may be moved to make holes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError, StoreUnavailable
from bakemesh.bus.inbox import Inbox, Item
from bakemesh.bus.kv import Bucket
from bakemesh.bus.sizes import MIB, Sizes
from bakemesh.bus.streams import ensure_hub, ensure_node_streams
from bakemesh.protocol import storage, subjects
from bakemesh.protocol.admit import Delivery, admit
from bakemesh.protocol.builder.messages import (
    BakeCancelled,
    BakeControl,
    BakeData,
    BakeDataPush,
    BakeFailed,
    BakeStatus,
    BakeSuccess,
    RecipeMessage,
    Result,
    SystemStatus,
)
from bakemesh.protocol.identity import Identity
from bakemesh.protocol.message import Message

Script = Callable[["ScriptedBake"], Awaitable[None]]
WINDOW = 256
SIZES = Sizes(data_bytes=256 * MIB, hub_data_bytes=256 * MIB)


class ScriptedBake:
    """One bake: what the script says of it goes out as a Builder's messages would."""

    def __init__(self, bus: Bus, recipe: RecipeMessage) -> None:
        self.bus, self.recipe = bus, recipe
        self.identity: Identity = recipe.identity
        self.serial = self.seq = 0
        self.lastctrlseq: dict[str, int] = {}
        self.controls: asyncio.Queue[tuple[str, BakeControl]] = asyncio.Queue()
        self.pushed: dict[str, dict[int, bytes]] = {}
        self.whole: dict[str, asyncio.Future[bytes]] = {}

    async def _store(self, message: Message) -> int:
        identity = self.identity
        subject = subjects.build(
            self.bus.mesh, identity.node_id, identity.supervisor, identity.recipe_id, message.type
        )
        sealed = self.bus.seal(message)
        while True:  # as an outbox does: the same bytes until they are acknowledged
            try:
                return (await self.bus.publish_stored(subject, sealed, timeout=2)).seq
            except BusError:
                await asyncio.sleep(0.05)

    async def status(
        self, kind: str = "interim", cls: type[BakeStatus] = BakeStatus, **more: Any
    ) -> BakeStatus:
        """The next Status or outcome message."""
        self.serial += 1
        values: dict[str, Any] = {"pct": -1, "summary": f"status {self.serial}"} | more
        message = cls(**self.identity.fields(), kind=kind, serial=self.serial, **values)
        await self._store(message)
        return message

    async def start(self) -> None:
        """The first Status."""
        await self.status("start", pct=0)

    async def chunk(self, data: bytes, **more: Any) -> None:
        """The next Data."""
        await self._store(self._chunk(data, more))

    async def chunks(self, pieces: list[bytes]) -> None:
        """Many Data, a window of them in flight, in order."""
        for first in range(0, len(pieces), WINDOW):
            some = [self._chunk(data, {}) for data in pieces[first : first + WINDOW]]
            await asyncio.gather(*(self._store(one) for one in some))

    def _chunk(self, data: bytes, more: dict[str, Any]) -> BakeData:
        self.seq += 1
        values: dict[str, Any] = {"stepindex": 0, "attempt": 1, "stream": "stdout"} | more
        return BakeData(**self.identity.fields(), seq=self.seq, data=data, **values)

    async def succeed(self) -> None:
        """The terminal Success."""
        await self.status(
            "outcome",
            BakeSuccess,
            pct=100,
            final=True,
            outcome="success",
            failedsteps=[],
            lastseq=self.seq,
        )

    async def fail(self, code: str = "step_failed") -> None:
        """The terminal Failed."""
        await self.status(
            "outcome", BakeFailed, final=True, outcome="failed", code=code, stepindex=0, lastseq=self.seq
        )

    async def cancelled(self) -> None:
        """The terminal Cancelled."""
        await self.status("outcome", BakeCancelled, final=True, outcome="cancelled", lastseq=self.seq)

    async def ask(self, request: str) -> bytes:
        """What a `<requestdata>` step does: asks, and waits for the whole push."""
        await self.status(request=request)
        return await self.expect(request)

    def expect(self, request: str) -> asyncio.Future[bytes]:
        """The whole push for `request`, once its last part is here."""
        return self.whole.setdefault(request, asyncio.get_running_loop().create_future())

    def take(self, push: BakeDataPush) -> None:
        """A part of a push, in whatever order and however often it comes."""
        parts = self.pushed.setdefault(push.request, {})
        parts[push.part] = push.data
        if push.lastpart:
            parts.setdefault(-1, push.part.to_bytes(8, "big"))
        last = int.from_bytes(parts.get(-1, b"\xff" * 8), "big")
        future = self.expect(push.request)
        if not future.done() and all(part in parts for part in range(1, min(last, 1000) + 1)):
            future.set_result(b"".join(parts[part] for part in range(1, last + 1)))


class ScriptedBuilder:
    """The Builder of one node. `refuse` may answer a recipe with another Result than `ok`."""

    def __init__(self, bus: Bus, node_id: str, node: str, script: Script) -> None:
        self.bus, self.node_id, self.node, self.script = bus, node_id, node, script
        self.bakes: dict[tuple[str, str], ScriptedBake] = {}
        self.results: dict[tuple[str, bytes], Result] = {}
        self.refuse: Callable[[RecipeMessage], dict[str, Any] | None] = lambda _recipe: None
        self.deaf = False  # takes recipes and gives no Result
        self.seen: list[tuple[str, bytes]] = []  # (subject, envelope id) of everything in the inbox
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self, inbox: Inbox) -> None:
        async for item in inbox:
            await self._take(item)
            await item.ack()

    async def _take(self, item: Item) -> None:
        delivery = admit(item.subject, None, item.headers, item.payload)
        assert isinstance(delivery, Delivery), delivery
        self.seen.append((item.subject, delivery.received.id))
        message = delivery.received.message
        if isinstance(message, RecipeMessage):
            key = (delivery.subject.party, delivery.received.id)
            result = self.results.get(key) or self._recipe(message)
            self.results[key] = result
        else:
            assert isinstance(message, BakeDataPush), message
            bake = self.bakes.get(message.identity.key)
            if bake is not None:
                bake.take(message)
            result = self.result(message.identity, "BakeData", "ok" if bake else "unknown_recipe")
        if (reply := item.headers.get("Bakemesh-Reply")) and not self.deaf:
            await self.bus.publish(reply, result)

    def _recipe(self, recipe: RecipeMessage) -> Result:
        identity = recipe.identity
        if identity.key in self.bakes:
            return self.result(identity, "Recipe", "duplicate_recipe_id")
        if refusal := self.refuse(recipe):
            return self.result(identity, "Recipe", **refusal)
        bake = self.bakes[identity.key] = ScriptedBake(self.bus, recipe)
        self.tasks.append(asyncio.create_task(self.script(bake)))  # type: ignore[arg-type]
        return self.result(identity, "Recipe", "ok")

    async def control(self, delivery: Delivery) -> Result:
        message = delivery.received.message
        assert isinstance(message, BakeControl)
        verb = delivery.received.type.rpartition(".")[2]
        bake = self.bakes.get(message.identity.key)
        code = "unknown_recipe"
        if bake is not None:
            stale = message.ctrlseq <= bake.lastctrlseq.get(message.issuedby, 0)
            code = "stale_ctrlseq" if stale else "ok"
            if not stale:
                bake.lastctrlseq[message.issuedby] = message.ctrlseq
                bake.controls.put_nowait((verb, message))
        return self.result(message.identity, verb, code, ctrlseq=message.ctrlseq)

    @staticmethod
    def result(identity: Identity, verb: str, code: str, **more: Any) -> Result:
        return Result(**identity.fields(), verb=verb, accepted=code == "ok", code=code, summary=code, **more)

    async def report(self, **more: Any) -> None:
        """Puts the node's SystemStatus and claim into the nodes bucket."""
        values: dict[str, Any] = {
            "boot": "boot",
            "bakes": 0,
            "queued": 0,
            "load": 0.0,
            "draining": False,
            "configcomplete": True,
            "version": "0",
            "protocols": ["builder-v1"],
            "stepkinds": ["cli"],
            "components": [],
        }
        message = SystemStatus(node=self.node, node_id=self.node_id, **(values | more))
        bucket = Bucket(self.bus, storage.nodes_bucket(self.bus.mesh))
        await bucket.put(self.node_id, self.bus.seal(message).payload)
        await bucket.put(storage.claim_key(self.node_id), b"claimed", ttl_s=60)


@asynccontextmanager
async def scripted_builder(
    bus: Bus, node_id: str, node: str, script: Script, *, report: bool = True
) -> AsyncIterator[ScriptedBuilder]:
    """A running scripted Builder; `bus` needs a Builder's rights."""
    # The node's first: a hub whose source is not there yet looks for it again only after half a minute.
    await ensure_node_streams(bus, node_id, SIZES)
    with contextlib.suppress(StoreUnavailable):  # a leaf is ready without its hub
        await ensure_hub(bus, SIZES, node_id=node_id)
    builder = ScriptedBuilder(bus, node_id, node, script)
    if report:
        await builder.report()
    control = subjects.pattern(bus.mesh, f"{subjects.CONTROL}.*", node_id=node_id)
    serving = await bus.serve(control, builder.control)
    async with Inbox(bus, node_id) as inbox:
        running = asyncio.create_task(builder.run(inbox))
        try:
            yield builder
        finally:
            tasks = [running, *builder.tasks]
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(BusError):
                await serving.stop()
            for one in done:
                if isinstance(one, Exception):
                    raise one
