"""The Supervisor SDK as the verbs use it: opened from the settings, and as the owner of a bake where that
is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from bakemesh.cli.call import Call
from bakemesh.settings import Settings

if TYPE_CHECKING:
    from bakemesh.supervisor import Bake, Supervisor

T = TypeVar("T")
CONNECT_S = 3.0
NEAR_S, LATE_S, FOLLOW_S = 0.5, 20.0, 120.0  # a hub may take a minute to source a leaf that has come back
HEARD_NS = 5_000_000_000


def open_supervisor(settings: Settings, name: str | None = None) -> Supervisor:
    """A Supervisor to enter with `async with`; `name` in place of the setting."""
    from bakemesh.bus import Credentials
    from bakemesh.supervisor import Supervisor

    return Supervisor.connect(
        settings.nats,
        name or settings.supervisor,
        mesh=settings.mesh,
        connect_timeout_s=CONNECT_S,
        credentials=Credentials(nkey_file=settings.creds) if settings.creds else None,
    )


@contextlib.asynccontextmanager
async def attached(
    call: Call, recipe_id: str, *, name: str | None = None
) -> AsyncIterator[tuple[Supervisor, Bake]]:
    """The bake `recipe_id` (`--supervisor`, `--node` narrow it down), held by `name`, else by its owner's
    name.

    A control and a push carry the name of the one who sends them, and the bake's owner may send both.
    """
    async with open_supervisor(call.settings, name or call.args.owner) as supervisor:
        bake = await _attach(call, supervisor, recipe_id)
        if name is not None or bake.identity.supervisor == supervisor.name:
            yield supervisor, bake
            return
        from bakemesh.supervisor import Supervisor

        async with Supervisor(supervisor.bus, bake.identity.supervisor) as owning:
            yield owning, await owning.attach(recipe_id, bake.identity.supervisor, bake.node_id)


async def _attach(call: Call, supervisor: Supervisor, recipe_id: str) -> Bake:
    """Between the inbox and its first Status a bake is nowhere for a moment; a hub hears of a leaf's late."""
    from bakemesh.supervisor import BakeUnknown

    loop = asyncio.get_running_loop()
    began, told = loop.time(), False
    most = FOLLOW_S if getattr(call.args, "follow", False) else LATE_S
    settled = began + NEAR_S  # from then on "unknown" is believed; after something was late, as long again
    while True:
        try:
            return await supervisor.attach(recipe_id, call.args.owner, call.args.target)
        except BakeUnknown:
            now = loop.time()
            if late := await _late(supervisor):
                settled = now + NEAR_S
            if now > settled or now - began > most:
                raise
            if late and not told:
                call.screen.note(f"bakemesh: {recipe_id} is not known yet; waits for what is late: {late}")
                told = True
            await asyncio.sleep(0.1)


async def _late(supervisor: Supervisor) -> str:
    """Leaf nodes whose Status the hub may not have yet: it has not heard of them, or is behind."""
    from bakemesh.bus.errors import NotFound
    from bakemesh.protocol import storage

    bus = supervisor.bus
    try:
        info = await bus.hub_api.stream_info(storage.hub_status_stream(bus.mesh))
    except NotFound:
        return ""
    heard = {
        source["name"]
        for source in info.get("sources") or ()
        if 0 <= int(source.get("active", -1)) < HEARD_NS and not source.get("lag")
    }
    leaves = [node for node in await supervisor.nodes() if node.status.leaf]
    return ", ".join(
        node.label for node in leaves if storage.status_stream(bus.mesh, node.node_id) not in heard
    )


def run(main: Coroutine[Any, Any, T]) -> T:
    """See bakemesh.bus.loop, which is imported only by a verb that does reach the bus."""
    from bakemesh.bus import loop

    return loop.run(main)


@contextlib.contextmanager
def on_interrupt(handler: Callable[[], None]) -> Iterator[None]:
    """While the block runs, Ctrl-C and TERM call `handler` in the loop."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
