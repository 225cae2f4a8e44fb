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
NEAR_S, LEAF_S = 0.5, 5.0


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
    owner, node = call.args.owner, call.args.target
    async with open_supervisor(call.settings, name or owner) as supervisor:
        bake = await _attach(supervisor, recipe_id, owner, node)
        if name is not None or bake.identity.supervisor == supervisor.name:
            yield supervisor, bake
            return
        from bakemesh.supervisor import Supervisor

        async with Supervisor(supervisor.bus, bake.identity.supervisor) as owning:
            yield owning, await owning.attach(recipe_id, bake.identity.supervisor, bake.node_id)


async def _attach(supervisor: Supervisor, recipe_id: str, owner: str | None, node: str | None) -> Bake:
    """Between the inbox and its first Status a bake is nowhere for a moment; a hub hears of it later."""
    from bakemesh.supervisor import BakeUnknown

    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        try:
            return await supervisor.attach(recipe_id, supervisor=owner, node=node)
        except BakeUnknown:
            leaf = any(known.status.leaf for known in await supervisor.nodes())
            if loop.time() - began > (LEAF_S if leaf else NEAR_S):
                raise
            await asyncio.sleep(0.1)


def run(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


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
