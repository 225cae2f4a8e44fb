"""One Builder, from its parts: made in order, stopped in reverse. `run(settings, stop)` takes all from
outside.

Start: lock on the state folder, journal, strangers of a dead predecessor killed, keeper, bus, claim, streams,
outboxes, components found again, recovery, and only then intake and controls. Stop: intake and controls,
running steps, components (stopped, or let go), outboxes, claim, bus, keeper, journal; the same whatever ends
the Builder, from whatever point of its start, and bounded in each part: a bus that is away is not waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bakemesh.builder.answers import Answers
from bakemesh.builder.bake.session import Kit, Session
from bakemesh.builder.bake.voice import Voice
from bakemesh.builder.children import ChildRecipes
from bakemesh.builder.clock import Clock
from bakemesh.builder.cohorts import Cohorts, Target
from bakemesh.builder.components.boot import Boot, settle_boot
from bakemesh.builder.components.component import Ground
from bakemesh.builder.components.desk import open_desk
from bakemesh.builder.components.host import Components
from bakemesh.builder.components.launch import Place, nurse
from bakemesh.builder.components.orders import Orders
from bakemesh.builder.components.reports import Reports
from bakemesh.builder.controls import Controls
from bakemesh.builder.folder import Holder, NodeTaken, StateFolder, settle
from bakemesh.builder.forwarding import Forwarding
from bakemesh.builder.hubward import Hubward
from bakemesh.builder.intake import Intake
from bakemesh.builder.janitor import Janitor
from bakemesh.builder.journal import Journal
from bakemesh.builder.journal.payloads import Payloads
from bakemesh.builder.kitchen import House, Kitchen
from bakemesh.builder.nodelife import NodeDown, NodeLife, forget
from bakemesh.builder.outbox import Outbox
from bakemesh.builder.performance import Speaker
from bakemesh.builder.presence import Presence
from bakemesh.builder.pushes import Pushes
from bakemesh.builder.rates import Buckets, Rate
from bakemesh.builder.refusing import Refusing
from bakemesh.builder.retention import Retention
from bakemesh.builder.settings import BuilderSettings
from bakemesh.builder.steps import SUPPORTED
from bakemesh.builder.steps.base import Children
from bakemesh.builder.stopping import unless, within
from bakemesh.bus.connection import Bus
from bakemesh.bus.discovery import announce
from bakemesh.bus.inbox import Inbox
from bakemesh.bus.streams import Sizes, ensure_node_streams
from bakemesh.bus.writer import StreamWriter
from bakemesh.processes import Keeper, Nursery, reap_strangers
from bakemesh.protocol import storage
from bakemesh.protocol.builder.spec import Limits
from bakemesh.protocol.envelope import VERSION
from bakemesh.protocol.subjects import COHORT_MESSAGE, CONTROL, NODE_CONTROL, pattern

log = logging.getLogger(__name__)
CONTROL_BURST, RECIPE_BURST = 5.0, 4.0  # times the rate: 1,000 and 200 at the defaults
INTAKE, FORWARDING, NODELIFE, PRESENCE = "intake", "forwarding", "nodelife", "presence"
# At the stop, in seconds: for what comes in, for steps beside their grace, for what is still to be said, for
# what is held on the hub (nothing can be given back to one that is away), for the connection.
IN_S, STEPS_S, OUT_S, HELD_S, HELD_AWAY_S, BUS_S = 1.5, 6.5, 2.5, 1.5, 0.3, 2.5
FOUND_S = 10.0  # for components that were not found again yet, where they are to end
KILLED_S = 20.0  # for those that a machine too busy has not ended in the time that they had


async def run(
    settings: BuilderSettings,
    stop: asyncio.Event,
    *,
    clock: Clock | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Bakes until `stop` is set, which may be at any time. Raises NodeTaken, StateRefused, JournalRefused,
    JournalBroken, KeeperFailed, BusError, OSError where it cannot start or cannot go on, and NodeDown where
    the node was asked down, once it has stopped.
    """
    clock = clock or Clock()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(StateFolder(settings.state))
        journal = Journal(folder.journal, sync_always=settings.durability == "power")
        stack.callback(journal.close)
        holder = await unless(stop, settle(folder, journal, settings.bus.mesh))
        if holder is None:
            return
        boot = await settle_boot(journal, copied=holder.copied)
        swept = await reap_strangers(holder.owner)
        if swept.killed:
            log.warning("%d processes that a dead Builder left behind were killed", swept.killed)
        keeper = await Keeper.start(holder.owner)
        stack.push_async_callback(keeper.close)
        nursery = Nursery(keeper, holder.owner, nurse(settings.environment))
        stack.push_async_callback(nursery.close)
        bus = await unless(stop, Bus.connect(settings.bus))
        if bus is None:
            return
        stack.push_async_callback(_close, bus)
        builder = _Builder(settings, clock, folder, holder, boot, journal, keeper, nursery, bus)
        end: str | None = None  # why the components are to end with this Builder
        try:
            if await unless(stop, builder.start()):
                ready()
                await builder.work(stop)
            if settings.stop_components:
                end = "the node was stopped"
        except NodeDown:
            end = "the node was asked down"
            raise
        except NodeTaken:
            end = "another Builder has the node"  # and brings up components of its own
            raise
        finally:
            await builder.stop(end)
            if end is not None:
                await within(HELD_S, [forget(journal)])


async def _close(bus: Bus) -> None:
    await within(BUS_S, [bus.close()])


def _rate(per_second: float, burst: float) -> Rate:
    return Rate(per_second, max(1.0, per_second * burst))


class _Builder:
    """The wiring."""

    def __init__(
        self,
        settings: BuilderSettings,
        clock: Clock,
        folder: StateFolder,
        holder: Holder,
        boot: Boot,
        journal: Journal,
        keeper: Keeper,
        nursery: Nursery,
        bus: Bus,
    ) -> None:
        self.settings, self.clock, self.bakes = settings, clock, folder.bakes
        self.holder, self.boot = holder, boot
        self.journal, self.bus = journal, bus
        self.keeper, self.nursery = keeper, nursery
        self.components = Components(lambda components: self._ground(components, folder.components))
        mesh, node_id = bus.mesh, settings.node_id
        self.status = self._outbox(storage.status_stream(mesh, node_id), "outbox_status", 2**40)
        self.data = self._outbox(
            storage.data_stream(mesh, node_id), "outbox_data", settings.outbox_max_bytes, journal.payloads
        )
        self.voice = Voice(mesh, node_id, bus.seal)
        self.children = ChildRecipes(bus, journal, node_id, unreachable_s=settings.unreachable_s, clock=clock)
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
            components=self.components,
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
        self.sizes = Sizes(data_bytes=settings.store_max_bytes, nodes_expected=settings.nodes_expected)
        self.hub = Hubward(bus, node_id, holder, self.sizes)
        self.intake: Intake | None = None
        self.presence: Presence | None = None
        self._outboxes: list[Outbox] = []
        self._incoming: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.kitchen = Kitchen(kit, house, _rate(settings.recipe_rate, RECIPE_BURST))

    def _outbox(self, stream: str, table: str, max_bytes: int, payloads: Payloads | None = None) -> Outbox:
        writer = StreamWriter(self.bus, stream)
        return Outbox(self.journal, writer, table, max_bytes=max_bytes, payloads=payloads)

    def _ground(self, components: Components, folder: Path) -> Ground:
        settings, bus = self.settings, self.bus
        place = Place(
            folder=folder,
            node=settings.node,
            node_id=settings.node_id,
            mesh=bus.mesh,
            nats=settings.bus.servers,
            environment=settings.environment,
            tls=settings.bus.tls,
            keys=settings.keys,
        )
        return Ground(
            journal=self.journal,
            keeper=self.keeper,
            nursery=self.nursery,
            bus=bus,
            clock=self.clock,
            place=place,
            boot=self.boot.id,
            changed=lambda: components.on_change(),
            forgotten=components.forgotten,
        )

    def _children_of(self, session: Session) -> Children:
        return self.children.of(session)

    async def start(self) -> bool:
        """Everything after the connection, until the Builder bakes. `stop` is due wherever this was left."""
        settings, bus = self.settings, self.bus
        # First what the hub draws from: a source that is not there is asked for again only much later.
        await ensure_node_streams(bus, settings.node_id, self.sizes)
        if not bus.on_leaf:
            await self.hub.make()
        for outbox in (self.status, self.data):
            self._outboxes.append(outbox)
            await outbox.start()
        await self.components.start(copied=self.holder.copied)
        await self.kitchen.recover()
        inbox = Inbox(bus, settings.node_id)
        self._incoming.append(inbox.close)
        await inbox.start()
        answers = Answers(bus)
        self._incoming.append(answers.close)
        refusing = Refusing(bus, self.kitchen, self.voice, self.clock)
        forwarding = Forwarding(bus, self.kitchen, refusing, answers)
        self.intake = Intake(
            bus,
            inbox,
            self.journal,
            self.kitchen,
            Pushes(self.kitchen),
            refusing,
            forwarding,
            answers,
            self.clock,
        )
        rate = _rate(settings.control_rate, CONTROL_BURST)
        controls = Controls(self.kitchen, settings.operators, Buckets(rate), self.clock)
        serving = await bus.serve(
            pattern(bus.mesh, f"{CONTROL}.*", node_id=settings.node_id),
            controls.answer,
            refused=controls.refused,
        )
        self._incoming.append(serving.stop)
        presence = self.presence = Presence(bus, self.kitchen, self.components, self.boot.id)
        self.hub.on_up = presence.changed
        life = await self._operated(presence, rate)
        orders = Orders(
            self.components,
            settings.operators,
            Buckets(rate),
            self.clock,
            open_to_all=not bus.auth_required,
            draining=lambda: self.kitchen.draining,
        )
        self._incoming += await open_desk(bus, settings.node_id, Reports(self.components, self.clock), orders)
        performance = Speaker(bus, settings.node, settings.node_id, settings.state, self._queues(inbox))
        retention = Retention(bus, self.journal, settings.node_id, self.bakes, self.clock)
        for name, work in (
            (INTAKE, self.intake.run()),
            (FORWARDING, forwarding.run()),
            (PRESENCE, presence.run()),
            ("performance", performance.run()),
            (NODELIFE, life.run()),
            ("hub", self.hub.run()),
            ("retention", retention.run()),
            ("janitor", Janitor(bus, self.clock).run()),
            ("children", self.children.run()),
            ("journal", self.journal.watch()),
        ):
            self._tasks[name] = asyncio.create_task(work, name=name)
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
        self._incoming.append(announced.stop)
        await presence.tell()
        return True

    async def _operated(self, presence: Presence, rate: Rate) -> NodeLife:
        """Drain and down, and cohort messages: requests to the node as a whole."""
        bus, house, operators = self.bus, self.kitchen.house, self.settings.operators
        life = NodeLife(
            self.kitchen,
            presence.boot,
            self.clock,
            allowed=lambda party: not bus.auth_required or party in operators,
            buckets=Buckets(rate),
            stop_components=self._stop_components,
            resume_components=self.components.resume,
        )

        def changed() -> None:
            presence.changed()
            life.changed()

        self.kitchen.on_change = changed
        cohorts = Cohorts(bus, house, self.clock, Buckets(rate), self._targets)
        for type_, answer, refused in (
            (f"{NODE_CONTROL}.*", life.answer, life.refused),
            (COHORT_MESSAGE, cohorts.answer, cohorts.refused),
        ):
            wanted = pattern(bus.mesh, type_, node_id=house.node_id)
            self._incoming.append((await bus.serve(wanted, answer, refused=refused)).stop)
        return life

    async def _stop_components(self, down: bool) -> None:
        reason = "the node was asked down" if down else "the node was drained"
        await self.components.stop_all(reason, drained=not down, end=down)

    def _targets(self, type_: str) -> list[Target]:
        return [Target(*found) for found in self.components.deliver_to(type_)]

    def _queues(self, inbox: Inbox) -> Callable[[], dict[str, int]]:
        return lambda: {
            "bakes": self.kitchen.queued,
            "inbox": inbox.waiting,
            "outbox_status": self.status.depth,
            "outbox_data": self.data.depth,
        }

    async def work(self, stop: asyncio.Event) -> None:
        """Until `stop`. Raises what a part of the Builder failed with."""
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait(
                [stopping, *self._tasks.values()], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            stopping.cancel()
        for task in done - {stopping}:
            if not task.cancelled():
                task.result()

    async def stop(self, end: str | None) -> None:
        """What comes in, what runs, what goes out, what is held. `end`: why the components are to end too;
        None: they run on. Never raises.
        """
        # A node is not down because this Builder ends its bakes: the next one goes on with a Down.
        first = (INTAKE, FORWARDING, NODELIFE)
        for name in first:
            if name in self._tasks:
                self._tasks[name].cancel()
        await within(IN_S, [*self._ends(*first), *(close() for close in self._incoming)])
        not_taken = self.bus.refused + (self.intake.dropped.counts if self.intake else Counter())
        if not_taken:
            counts = ", ".join(f"{count} {reason}" for reason, count in not_taken.most_common())
            log.info("messages that were not taken: %s", counts)
        await within(self.settings.kill_grace_s + STEPS_S, [self.kitchen.close()])
        if end is not None:
            if not self.components.started:
                await within(FOUND_S, [self.components.start(copied=self.holder.copied)])
            await within(self.components.stop_s + HELD_S, [self.components.stop_all(end, end=True)])
            await within(KILLED_S, [self.components.kill_all()])
        await within(HELD_S, [self.components.close()])
        if self.bus.connected:
            # What is said already shall be heard; what cannot be said in time is in the journal.
            await within(OUT_S, [*(outbox.empty() for outbox in self._outboxes), self._last_word()])
        for task in self._tasks.values():
            task.cancel()
        held_s = HELD_S if self.bus.connected else HELD_AWAY_S
        await within(held_s, [*self._ends(*self._tasks), self.hub.close()])
        await within(HELD_S, [outbox.close() for outbox in self._outboxes])

    async def _last_word(self) -> None:
        """What runs here no more: who asked for that waits to read it. A node that was taken is another's."""
        if self.presence is not None and PRESENCE in self._tasks and self.hub.claim.held:
            self._tasks[PRESENCE].cancel()
            await asyncio.wait(self._ends(PRESENCE))  # nothing follows that was so before
            await self.presence.tell()

    def _ends(self, *names: str) -> list[asyncio.Future[Any]]:
        return [task for name, task in self._tasks.items() if name in names]
