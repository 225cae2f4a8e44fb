"""The whole system, live: nodes, components, running bakes with their progress. A picture on a terminal, a
line for each change when piped, an event a line with --json. Ctrl-C ends it.

It sees what its identity may see: bakes of all Supervisors as a dashboard or an operator, else its own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

from bakemesh.cli import link
from bakemesh.cli.call import Call
from bakemesh.cli.exits import Exit, usage
from bakemesh.cli.screen import rich_on
from bakemesh.settings import add_flags

if TYPE_CHECKING:
    from bakemesh.cli.watching import Bake, Event, View
    from bakemesh.protocol.admit import Delivery
    from bakemesh.supervisor import Supervisor

EXAMPLE = """\
  bakemesh watch
  bakemesh watch --json --for 60"""
TICK_S, DRAW_S = 0.5, 0.25
LISTED = 50
LOOK_S = 10.0  # for claims that are lost, and nodes that were never heard


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "--for", dest="for_s", type=float, metavar="SECONDS", help="stop by itself after so long"
    )
    add_flags(parser, ("nats", "mesh", "supervisor", "creds", "state"))


def run(call: Call) -> int:
    """Watches until it is stopped."""
    if call.args.for_s is not None and not 0 <= call.args.for_s < math.inf:
        raise usage(f"--for {call.args.for_s:g}: expected seconds, 0 or more")
    return link.run(_watch(call))


async def _watch(call: Call) -> int:
    from bakemesh.cli.watching import View

    stop = asyncio.Event()
    async with link.open_supervisor(call.settings) as supervisor:
        with link.on_interrupt(stop.set):
            view = View()
            async with _shown(call, view) as tell:
                watcher = _Watcher(supervisor, view, tell, call.screen.note)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(call.args.for_s):
                        await watcher.run(stop)
    return Exit.DONE


Tell = Callable[["Iterable[Event]"], None]


class _Watcher:
    """Fills the view: live, and from the stores at the start, now and then, and after the bus was away."""

    def __init__(self, supervisor: Supervisor, view: View, tell: Tell, note: Callable[[str], None]) -> None:
        self._supervisor, self._view, self._told, self._note = supervisor, view, tell, note
        self._bus = supervisor.bus
        self._missed = asyncio.Event()
        self._closed: str | None = None
        self._unread: BrokenPipeError | None = None
        self._denied: set[str] = set()  # what the identity may not read, told once

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`. Raises BusClosed where the bus is gone for good, BrokenPipeError where nobody
        reads.
        """
        from bakemesh.bus.errors import BusClosed

        unhook = self._bus.on_event(self._on_event)
        subscriptions = await self._subscribe()
        looking = asyncio.create_task(self._look_for_ever())
        try:
            while not stop.is_set():
                if self._closed is not None:
                    raise BusClosed(self._closed)
                if self._unread is not None:
                    raise self._unread
                if looking.done():
                    looking.result()
                self._tell(self._view.tick(self._now()))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await stop.wait()
        finally:
            unhook()
            looking.cancel()
            await asyncio.gather(looking, *(each.stop() for each in subscriptions), return_exceptions=True)

    def _tell(self, events: Iterable[Event]) -> None:
        """Whoever read it may be gone; in a handler of the bus nobody would hear of that."""
        try:
            self._told(events)
        except BrokenPipeError as error:
            self._unread = error

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- live

    async def _subscribe(self) -> list[Any]:
        from bakemesh.bus.errors import AccessDenied
        from bakemesh.protocol import subjects
        from bakemesh.protocol.builder.messages import Performance, SystemStatus
        from bakemesh.supervisor.live import TYPES

        bus, mesh = self._bus, self._bus.mesh
        made = [
            await bus.subscribe(subjects.pattern(mesh, kind), self._on_message)
            for kind in (SystemStatus.TYPE, Performance.TYPE)
        ]
        try:
            made += [await bus.subscribe(subjects.pattern(mesh, kind), self._on_message) for kind in TYPES]
        except AccessDenied:
            name = self._supervisor.name
            self._note(f"bakemesh: sees the bakes of {name} alone; all of them need an operator's identity")
            for kind in TYPES:
                made.append(await bus.subscribe(subjects.pattern(mesh, kind, party=name), self._on_message))
        return made

    def _on_message(self, delivery: Delivery) -> None:
        from bakemesh.protocol.builder.messages import BakeStatus, Performance, SystemStatus

        message, subject = delivery.received.message, delivery.subject
        match message:
            case SystemStatus() if message.node_id == subject.node_id:
                self._tell(self._view.status(message, self._now()))
            case Performance() if message.node_id == subject.node_id:
                self._tell(self._view.performance(message))
            case BakeStatus() if message.identity.key == (subject.party, subject.key):
                self._tell(self._view.bake(message, self._now()))
            case _:
                return

    def _on_event(self, event: object) -> None:
        from bakemesh.bus.events import Closed, Disconnected, Reconnected, SlowConsumer

        match event:
            case Reconnected() | SlowConsumer():
                self._missed.set()
            case Disconnected():
                self._note(f"bakemesh: the bus is away: {event.reason}")
            case Closed():
                self._closed = event.reason

    # -- from the stores

    async def _look_for_ever(self) -> None:
        from bakemesh.bus.errors import BusClosed, BusError

        missed = True
        while True:
            try:
                await self._look(bakes=missed)
                missed = False
            except BusClosed:
                return
            except BusError as error:
                if self._bus.connected:
                    self._once(f"what is stored cannot be read ({error}); shows what is heard")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._missed.wait()
                    missed = True
            self._missed.clear()

    async def _look(self, *, bakes: bool) -> None:
        from bakemesh.bus.errors import AccessDenied
        from bakemesh.cli.listing import bakes as listed

        node_ids: list[str] = []
        try:
            nodes = await self._supervisor.nodes()
        except AccessDenied:
            self._once("may not read the nodes bucket; shows nodes as they are heard")
        else:
            node_ids = [node.node_id for node in nodes]
            self._tell(self._view.looked(nodes, self._now()))
        if not bakes:
            return
        asked = self._now()
        try:
            rows = await listed(self._bus, node_ids, limit=LISTED)
        except AccessDenied:
            self._once("may not read the bakes that are stored; shows those that are heard")
            return
        self._tell(self._view.listed([_bake(row) for row in rows], asked, self._now()))

    def _once(self, text: str) -> None:
        if text not in self._denied:
            self._denied.add(text)
            self._note(f"bakemesh: {text}")


def _bake(row: Any) -> Bake:
    from bakemesh.cli.watching import Bake

    key = row.key
    return Bake(key.recipe_id, key.supervisor, row.node, key.node_id, row.state, row.pct, row.summary)


# -- how it is shown


@contextlib.asynccontextmanager
async def _shown(call: Call, view: View) -> AsyncIterator[Tell]:
    """Where the events go: drawn, as lines, or as JSON."""
    from bakemesh.cli.progress import one_line
    from bakemesh.cli.watching import line

    screen = call.screen

    def events_of(events: Iterable[Event]) -> None:
        for each in events:
            screen.event(each.name, **each.fields)

    def lines_of(events: Iterable[Event]) -> None:
        for each in events:
            if each.name != "performance":  # every few seconds, and never news
                screen.say(one_line(line(each)))

    if screen.machine:
        yield events_of
    elif rich_on(screen.out):
        async with _drawn(screen.out, view):
            yield lambda _events: None
    else:
        yield lines_of


@contextlib.asynccontextmanager
async def _drawn(out: Any, view: View) -> AsyncIterator[None]:
    from rich.console import Console
    from rich.live import Live

    from bakemesh.cli.board import draw

    loop = asyncio.get_running_loop()
    with Live(
        console=Console(file=out), auto_refresh=False, transient=False, redirect_stdout=False,
        redirect_stderr=False, vertical_overflow="ellipsis",
    ) as live:  # fmt: skip

        async def redraw() -> None:
            while True:
                live.update(draw(view, loop.time()), refresh=True)
                await asyncio.sleep(DRAW_S)

        drawing = asyncio.create_task(redraw())
        try:
            yield
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)
            live.update(draw(view, loop.time()), refresh=True)
