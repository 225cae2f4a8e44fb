"""One component, alive: events in order, journaled before what `core` decided is done.

Guarantees: an instance is in the journal before anything of it is started, and nothing else of the component
lives then; what a dead Builder left is found by `recover` before anything is launched; an event's waiter
returns when it is journaled. Left out: which components there are (`host`), who may ask (`orders`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from bakemesh.builder.clock import Clock
from bakemesh.builder.components import core, launch
from bakemesh.builder.components.errors import Forgotten
from bakemesh.builder.components.instance import Instance
from bakemesh.builder.components.life import (
    Arm,
    Bygone,
    Due,
    Effect,
    End,
    Event,
    Facts,
    Forget,
    Launch,
    Leftover,
    Life,
    Recovered,
)
from bakemesh.builder.components.output import end_of
from bakemesh.builder.components.records import Maker, Row, drop_row, save_row
from bakemesh.builder.components.states import State
from bakemesh.builder.journal import Journal, JournalBroken, JournalClosed
from bakemesh.bus.connection import Bus
from bakemesh.processes import (
    Keeper,
    Nursery,
)

log = logging.getLogger(__name__)
WATCHED = 72  # live values that are kept of a component: a crank's 64, and its host's own
LAUNCH_S = 1.0  # at the end, for what is just being launched
EARLIER = "an earlier start of the node; not started in this one"


@dataclass(frozen=True, slots=True)
class Ground:
    """What every component of a Builder shares."""

    journal: Journal
    keeper: Keeper
    nursery: Nursery
    bus: Bus
    clock: Clock
    place: launch.Place
    boot: str
    changed: Callable[[], None]  # something that SystemStatus says is not as it was
    forgotten: Callable[[Component], None]
    draw: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Claim:
    """Who an event makes the component's owner, and the step's attempt that did."""

    owner: str
    maker: Maker | None


@dataclass(slots=True)
class _Item:
    event: Event
    claim: Claim | None = None
    done: asyncio.Future[None] | None = None


class Component:
    """Made from a row of this or an earlier Builder; `open` lets it take events."""

    def __init__(self, ground: Ground, row: Row) -> None:
        self.ground, self.row = ground, row
        self.folder = ground.place.of(row.name)
        self.watch: dict[str, str] = {}
        self.gone = False  # forgotten
        self._closed: Exception | None = None  # why no event is taken any more
        self._items: asyncio.Queue[_Item] = asyncio.Queue()
        self._news = asyncio.Event()
        self._instance: Instance | None = None
        self._ends: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._actor: asyncio.Task[None] | None = None
        self._unheld = ""  # of the instance before

    @property
    def name(self) -> str:
        """Its name."""
        return self.row.name

    @property
    def life(self) -> Life:
        """As it is journaled."""
        return self.row.life

    @property
    def unheld(self) -> str:
        """Which of its limits the system does not hold."""
        return self._unheld if self._instance is None else self._instance.unheld

    # -- events

    def open(self) -> None:
        """Begins to take events."""
        self._actor = asyncio.create_task(self._run(), name=f"component {self.name}")

    async def apply(self, event: Event, claim: Claim | None = None) -> None:
        """Takes an event and returns when what follows from it is journaled. Raises Forgotten,
        JournalClosed, JournalBroken."""
        if self._closed is not None:
            raise self._closed
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._items.put_nowait(_Item(event, claim, done))
        await done

    def tell(self, event: Event) -> None:
        """Takes an event; nobody waits."""
        self._items.put_nowait(_Item(event))

    async def until(self, check: Callable[[Component], bool]) -> None:
        """Returns once `check` is true of it."""
        while not check(self):
            await self._news.wait()

    async def _run(self) -> None:
        while True:
            item = await self._items.get()
            error: Exception | None = None
            try:
                await self._turn(item)
            except (Forgotten, JournalClosed, JournalBroken) as closed:
                error = closed
            except Exception as failure:
                log.exception("component %s: %s", self.name, type(item.event).__name__)
                error = failure
            if item.done is not None and not item.done.done():
                if error is None:
                    item.done.set_result(None)
                else:
                    item.done.set_exception(error)
            if isinstance(error, JournalClosed | JournalBroken):
                self._refuse(error)
                return

    def _refuse(self, why: Exception) -> None:
        """Takes no event any more, and tells who waits."""
        self._closed = self._closed or why
        while not self._items.empty():
            item = self._items.get_nowait()
            if item.done is not None and not item.done.done():
                item.done.set_exception(why)

    async def _turn(self, item: _Item) -> None:
        if self.gone:
            raise Forgotten(self.name)
        clock, before = self.ground.clock, self.life
        facts = Facts(clock.monotonic(), clock.wall(), self.ground.draw(), uuid.uuid4().hex)
        life, effects = core.step(before, item.event, facts)
        row = replace(self.row, life=life)
        if item.claim is not None:
            row = replace(row, owner=item.claim.owner, maker=item.claim.maker, boot=self.ground.boot)
        if any(isinstance(effect, Launch) for effect in effects):
            row = replace(row, mark=end_of(self.folder), boot=self.ground.boot)
        forget = any(isinstance(effect, Forget) for effect in effects)
        if row != self.row or forget:
            await self.ground.journal.commit(lambda db: drop_row(db, row.n) if forget else save_row(db, row))
        self.row = row
        if life.instance != before.instance:
            self._clear_instance()
        if life.state is not before.state:
            self._say(before.state)
        for effect in effects:
            self._act(effect)
        if life != before or forget:
            self._tell_all()

    def _say(self, before: State) -> None:
        life = self.life
        level = logging.WARNING if life.state in (State.UNHEALTHY, State.QUARANTINED) else logging.INFO
        why = f": {life.reason}" if life.reason else ""
        log.log(level, "component %s: %s → %s%s", self.name, before, life.state, why)
        if life.traceback and life.state in (State.BACKOFF, State.QUARANTINED, State.ENDED):
            log.warning("component %s: %s\n%s", self.name, life.report, life.traceback)

    def _tell_all(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
        self.ground.changed()

    # -- effects

    def _act(self, effect: Effect) -> None:
        match effect:
            case Launch(instance):
                self._new_instance(instance).launch(self.life.spec)
            case End(_, grace_s):
                assert self._instance is not None
                task = asyncio.create_task(self._instance.end(grace_s), name=f"end of component {self.name}")
                self._ends.add(task)
                task.add_done_callback(self._ends.discard)
            case Arm(due):
                self._arm(due)
            case Forget():
                self.gone = True
                self.ground.forgotten(self)

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0.0, due - self.ground.clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self.tell, Due())

    def _clear_instance(self) -> None:
        """What served the instance before is over."""
        if self._instance is not None:
            self._unheld = self._instance.unheld
            self._instance.over()
        self._instance = None
        self.watch.clear()

    def _new_instance(self, name: str) -> Instance:
        self._instance = Instance(
            self.ground, self.name, name, lambda: self.life, self.tell, unheld=self._unheld
        )
        return self._instance

    async def kill(self) -> None:
        """Ends what runs of it at once; its row stays as it is."""
        if self._instance is not None:
            await self._instance.end(0.0)

    # -- a Builder comes and goes

    async def recover(self) -> None:
        """Begins to find what a dead Builder left of it, and lets it go on; `found` returns when that is
        over. To be called once, before anything else.

        Whoever was made or started in another start of the node is ended, where it still runs, and rests.
        """
        life, instance = self.life, self.life.instance
        if self.row.boot == self.ground.boot:
            if instance is None:
                await self.apply(Recovered())
        elif instance is not None:
            await self.apply(Leftover(EARLIER))
        elif life.state is not State.STOPPED or life.drained:  # no Resume of this one starts it
            await self.apply(Bygone(EARLIER))
        if instance is not None:
            self._new_instance(instance).find()

    async def found(self) -> None:
        """Returns once what was left of it runs on or has ended; of an earlier start of the node: ended."""
        if self._instance is not None:
            await self._instance.begun()
            with contextlib.suppress(Forgotten):
                await self.apply(Recovered())  # when this is taken, what came of it was
        await self.until(lambda it: it.gone or it.row.boot == it.ground.boot or not it.life.alive)

    async def disown(self) -> None:
        """The state folder was copied: what the row says runs is the other one's. It rests."""
        await self.apply(Bygone("the state folder was copied or moved; not started here"))

    async def close(self) -> None:
        """Lets it go: what runs runs on, for the next Builder to find."""
        if self._instance is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._instance.begun(), LAUNCH_S)
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in (self._actor, *self._ends) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._instance is not None:
            await self._instance.close()
        self._refuse(Forgotten(self.name) if self.gone else JournalClosed())

    # -- what is said of it

    def watched(self, key: str, value: str) -> None:
        """A live value of it; the oldest key goes where there are too many."""
        self.watch.pop(key, None)
        self.watch[key] = value
        while len(self.watch) > WATCHED:
            self.watch.pop(next(iter(self.watch)))
