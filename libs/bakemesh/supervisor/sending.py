"""How recipes of a Supervisor get to their nodes: placed, numbered, sealed, sent, their Results waited for.

Guarantees: the bytes of a recipe that is sent again are the same; a Result that comes after the wait is still
taken in, as long as anybody holds the bake; `close` ends what waits. Left out: what a bake offers (`bake`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import ref

from bakemesh.bus import Bus
from bakemesh.bus.errors import BusError, RequestTimeout
from bakemesh.bus.replies import InboxReply
from bakemesh.protocol import names
from bakemesh.protocol.builder.codes import Code
from bakemesh.protocol.identity import Identity
from bakemesh.supervisor import deliver, recipe
from bakemesh.supervisor.bake import Bake
from bakemesh.supervisor.directory import Directory, Place
from bakemesh.supervisor.errors import RecipeRejected
from bakemesh.supervisor.mint import Mint
from bakemesh.supervisor.nodes import ANY_NODE
from bakemesh.supervisor.recipe import Order, Prepared

LATE_LOOK_S = 30.0


class Sending:
    """Sends for the Supervisor `name`. `handle` makes its bakes; `check` raises Closed once it is closed."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        mint: Mint,
        directory: Directory,
        handle: Callable[[Identity], Bake],
        check: Callable[[], None],
    ) -> None:
        self._bus, self._name, self._mint, self._directory = bus, name, mint, directory
        self._handle, self._check = handle, check
        self._late: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Waits for no Result any more."""
        for task in self._late.values():
            task.cancel()
        await asyncio.gather(*self._late.values(), return_exceptions=True)

    def forget(self, key: tuple[str, str]) -> None:
        """Nobody wants the late Result of this bake."""
        if (task := self._late.pop(key, None)) is not None:
            task.cancel()

    async def place(self, node: str | None, node_id: str | None) -> Place:
        """Where a recipe goes. Raises NodeUnknown, NameRefused."""
        if node_id is not None:
            names.check("NodeID", node_id)
            return Place(node if node and node != ANY_NODE else node_id, node_id)
        return await self._directory.find(names.check("Node", node))

    async def prepare(self, order: Order, place: Place) -> Prepared:
        """Numbered and sealed. Raises MintExhausted, MessageTooLarge."""
        self._check()
        number = await self._mint.next()
        prepared = recipe.prepare(self._bus, order, self._name, number, place.name, place.node_id)
        self._directory.placed(place.node_id)
        return prepared

    async def bake_anywhere(self, order: Order, result_timeout_s: float) -> Bake:
        """On the least loaded node that does not refuse because it drains."""
        refusal: RecipeRejected | None = None
        for place in await self._directory.least_loaded():
            prepared = await self.prepare(order, place)
            try:
                return await self.send(prepared, result_timeout_s, order)
            except RecipeRejected as error:
                if error.code != Code.DRAINING:  # began to drain since it was looked up: the next one
                    raise
                refusal = error
        assert refusal is not None  # there is at least one node, and each refused
        raise refusal

    async def send(self, prepared: Prepared, result_timeout_s: float, again: Order | None) -> Bake:
        """See `Supervisor.send`."""
        bake = self._handle(prepared.identity)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + result_timeout_s
        while True:
            reply = self._bus.inbox_reply()
            try:
                await deliver.store(self._bus, prepared.subject, prepared.sealed, reply.subject)
                bake.result = await deliver.result(reply, max(0.0, deadline - loop.time()))
            except RequestTimeout:
                self._wait_on(bake, reply)
                return bake
            except BaseException:
                reply.close()
                raise
            reply.close()
            result = bake.result
            if result.accepted:
                return bake
            pause = (result.retryms or 0) / 1000
            if result.code != Code.RATE_LIMITED or again is None or loop.time() + pause > deadline:
                raise RecipeRejected(result)
            await asyncio.sleep(pause)
            number = int(prepared.identity.recipe_id.rpartition("-")[2])
            place = prepared.identity
            prepared = recipe.prepare(self._bus, again, self._name, number, place.node, place.node_id)

    # -- Results that come later

    def _wait_on(self, bake: Bake, reply: InboxReply) -> None:
        key = bake.identity.key
        task = asyncio.create_task(_late_result(ref(bake), reply), name=f"result of {bake.recipe_id}")
        self._late[key] = task
        task.add_done_callback(lambda _done: self._late.pop(key, None))


async def _late_result(holder: ref[Bake], reply: InboxReply) -> None:
    """Waits for the Result of a recipe that waits for its node, as long as anybody holds the bake."""
    with reply:
        while (bake := holder()) is not None and bake.terminal is None:
            del bake  # not held while waiting
            try:
                result = await deliver.result(reply, LATE_LOOK_S)
            except RequestTimeout:
                continue
            except BusError:
                return
            if (bake := holder()) is not None:
                bake.take_result(result)
            return
