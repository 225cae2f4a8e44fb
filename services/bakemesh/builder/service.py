"""One Builder, from its parts: made in order, stopped in reverse. `run(settings, stop)` takes all from
outside.

Start: lock on the state folder, journal, strangers of a dead predecessor killed, keeper, bus, claim, streams,
outboxes, recovery, and only then intake and controls. Stop: intake and controls, running steps, outboxes
(bounded), claim, bus, keeper, journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from bakemesh.builder.answers import Answers
from bakemesh.builder.bake.session import Kit, Session
from bakemesh.builder.bake.voice import Voice
from bakemesh.builder.children import ChildRecipes
from bakemesh.builder.clock import Clock
from bakemesh.builder.controls import Controls
from bakemesh.builder.forwarding import Forwarding
from bakemesh.builder.hubward import Hubward, NodeTaken
from bakemesh.builder.intake import Intake
from bakemesh.builder.janitor import Janitor
from bakemesh.builder.journal import Journal
from bakemesh.builder.journal.payloads import Payloads
from bakemesh.builder.journal.records import get_meta, set_meta
from bakemesh.builder.kitchen import House, Kitchen
from bakemesh.builder.outbox import Outbox
from bakemesh.builder.presence import Presence
from bakemesh.builder.pushes import Pushes
from bakemesh.builder.rates import Buckets, Rate
from bakemesh.builder.refusing import Refusing
from bakemesh.builder.retention import Retention
from bakemesh.builder.settings import BuilderSettings
from bakemesh.builder.steps import SUPPORTED
from bakemesh.builder.steps.base import Children
from bakemesh.bus.connection import Bus
from bakemesh.bus.discovery import announce
from bakemesh.bus.inbox import Inbox
from bakemesh.bus.streams import Sizes, ensure_node_streams
from bakemesh.bus.writer import StreamWriter
from bakemesh.processes import Keeper, reap_strangers
from bakemesh.protocol import storage
from bakemesh.protocol.builder.spec import Limits
from bakemesh.protocol.envelope import VERSION
from bakemesh.protocol.subjects import CONTROL, pattern

log = logging.getLogger(__name__)
CONTROL_BURST, RECIPE_BURST = 5.0, 4.0  # times the rate: 1,000 and 200 at the defaults
DRAIN_S = 3.0


class StateFolder:
    """The state folder and the lock on it: one Builder a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def __enter__(self) -> StateFolder:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path / "builder.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            held = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise NodeTaken(
                f"state folder {self.path}: a Builder (pid {held}) runs on it already; "
                "stop it, or give another --state"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


async def run(
    settings: BuilderSettings,
    stop: asyncio.Event,
    *,
    clock: Clock | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Bakes until `stop` is set. Raises NodeTaken, JournalRefused, KeeperFailed, BusError when it cannot
    start.
    """
    clock = clock or Clock()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(StateFolder(settings.state))
        journal = Journal(folder.path / "journal.db", sync_always=settings.durability == "power")
        stack.callback(journal.close)
        owner = await _owner(journal)
        swept = await reap_strangers(owner)
        if swept.killed:
            log.warning("%d processes that a dead Builder left behind were killed", swept.killed)
        keeper = await Keeper.start(owner)
        stack.push_async_callback(keeper.close)
        bus = await Bus.connect(settings.bus)
        stack.push_async_callback(bus.close)
        builder = _Builder(settings, clock, folder.path, owner, journal, keeper, bus)
        await builder.run(stop, ready)


async def _owner(journal: Journal) -> str:
    """This state folder's own name for itself: the token of its steps, and the holder of its claim."""
    owner = get_meta(journal.db, "owner")
    if owner is None:
        owner = uuid.uuid4().hex
        await journal.commit(lambda db: set_meta(db, "owner", owner))
    return owner


def _rate(per_second: float, burst: float) -> Rate:
    return Rate(per_second, max(1.0, per_second * burst))


class _Builder:
    """The wiring."""

    def __init__(
        self,
        settings: BuilderSettings,
        clock: Clock,
        folder: Path,
        owner: str,
        journal: Journal,
        keeper: Keeper,
        bus: Bus,
    ) -> None:
        self.settings, self.clock, self.owner = settings, clock, owner
        self.journal, self.keeper, self.bus = journal, keeper, bus
        mesh, node_id = bus.mesh, settings.node_id
        self.status = self._outbox(storage.status_stream(mesh, node_id), "outbox_status", 2**40)
        self.data = self._outbox(
            storage.data_stream(mesh, node_id), "outbox_data", settings.outbox_max_bytes, journal.payloads
        )
        self.voice = Voice(mesh, node_id, bus.seal)
        self.children = ChildRecipes(bus, journal, node_id, unreachable_s=settings.unreachable_s, clock=clock)
        self.bakes = folder / "bakes"
        kit = Kit(
            journal=journal,
            status=self.status,
            data=self.data,
            keeper=keeper,
            clock=clock,
            voice=self.voice,
            folder=self.bakes,
            environment=settings.environment,
            kill_grace_s=settings.kill_grace_s,
            children=self._children_of,
            over=lambda session: self.kitchen.over(session),
        )
        accept = settings.accept_forwarded
        house = House(
            node=settings.node,
            node_id=node_id,
            accept_forwarded=not bus.auth_required if accept is None else accept,
            max_bakes=settings.max_bakes,
            max_payload=bus.max_payload,
            limits=Limits(),
        )
        self.kitchen = Kitchen(kit, house, _rate(settings.recipe_rate, RECIPE_BURST))

    def _outbox(self, stream: str, table: str, max_bytes: int, payloads: Payloads | None = None) -> Outbox:
        writer = StreamWriter(self.bus, stream)
        return Outbox(self.journal, writer, table, max_bytes=max_bytes, payloads=payloads)

    def _children_of(self, session: Session) -> Children:
        return self.children.of(session)

    async def run(self, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        """Everything after the connection, to the stop."""
        settings, bus = self.settings, self.bus
        async with AsyncExitStack() as stack:
            sizes = Sizes(data_bytes=settings.store_max_bytes, nodes_expected=settings.nodes_expected)
            hub = Hubward(bus, settings.node_id, self.owner, sizes)
            stack.push_async_callback(hub.close)
            # First what the hub draws from: a source that is not there is asked for again only much later.
            await ensure_node_streams(bus, settings.node_id, sizes)
            if not bus.on_leaf:
                await hub.make()
            for outbox in (self.status, self.data):
                await outbox.start()
                stack.push_async_callback(outbox.close)
            await self.kitchen.recover()
            inbox = Inbox(bus, settings.node_id)
            await inbox.start()
            pushes = Pushes(self.kitchen)
            answers = Answers(bus)
            refusing = Refusing(bus, self.kitchen, self.voice, self.clock)
            forwarding = Forwarding(bus, self.kitchen, refusing, answers)
            intake = Intake(
                bus, inbox, self.journal, self.kitchen, pushes, refusing, forwarding, answers, self.clock
            )
            controls = Controls(
                self.kitchen,
                settings.operators,
                Buckets(_rate(settings.control_rate, CONTROL_BURST)),
                self.clock,
            )
            presence = Presence(bus, self.kitchen)
            retention = Retention(bus, self.journal, settings.node_id, self.bakes, self.clock)
            serving = await bus.serve(
                pattern(bus.mesh, f"{CONTROL}.*", node_id=settings.node_id),
                controls.answer,
                refused=controls.refused,
            )
            tasks = [
                asyncio.create_task(work, name=name)
                for name, work in (
                    ("intake", intake.run()),
                    ("forwarding", forwarding.run()),
                    ("presence", presence.run()),
                    ("hub", hub.run()),
                    ("retention", retention.run()),
                    ("janitor", Janitor(bus, self.clock).run()),
                    ("children", self.children.run()),
                )
            ]
            announced = await announce(
                bus,
                "builder",
                version=presence.version,
                description=f"the Builder of node {settings.node}",
                metadata={
                    "node": settings.node,
                    "nodeid": settings.node_id,
                    "protocols": f"builder-v{VERSION}",
                    "stepkinds": ",".join(sorted(SUPPORTED)),
                },
                endpoints=[serving],
            )
            stack.push_async_callback(announced.stop)
            await presence.first()
            ready()
            await self._until(stop, tasks)
            # Stop order: what comes in, what runs, what goes out.
            tasks[0].cancel()
            await asyncio.gather(tasks[0], return_exceptions=True)
            await inbox.close()
            await serving.stop()
            await answers.close()
            if not_taken := bus.refused + intake.dropped.counts:
                counts = ", ".join(f"{count} {reason}" for reason, count in not_taken.most_common())
                log.info("messages that were not taken: %s", counts)
            await self.kitchen.close()
            await self._drain()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _drain(self) -> None:
        """What is said already shall be heard; what cannot be said in time is in the journal."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self.status.empty()
                await self.data.empty()

    async def _until(self, stop: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
        stopping = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for task in done:
            if task is not stopping and not task.cancelled() and (error := task.exception()) is not None:
                raise error
