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
import signal
import uuid
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from bakemesh.builder.clock import Clock
from bakemesh.builder.components import core, launch
from bakemesh.builder.components.errors import Forgotten
from bakemesh.builder.components.life import (
    AliveFor,
    Arm,
    Bygone,
    Due,
    Effect,
    End,
    Event,
    Exited,
    Facts,
    Forget,
    Launch,
    Launched,
    Leftover,
    Life,
    Lingers,
    NotLaunched,
    ProbeGood,
    ProbeMissed,
    Recovered,
    Vanished,
    Wait,
)
from bakemesh.builder.components.output import end_of
from bakemesh.builder.components.probe import GOOD, Prober
from bakemesh.builder.components.records import Maker, Row, drop_row, save_row
from bakemesh.builder.components.states import State
from bakemesh.builder.journal import Journal, JournalBroken, JournalClosed
from bakemesh.builder.steps.endings import why_refused
from bakemesh.builder.stopping import unless
from bakemesh.bus.connection import Bus
from bakemesh.bus.errors import BusError
from bakemesh.bus.posts import ensure_posts
from bakemesh.processes import (
    Keeper,
    KeeperLost,
    Nursery,
    ProcessSpec,
    ShimExit,
    Shimmed,
    ShimSpec,
    SpawnRefused,
    Survivor,
    adopt,
    sweep_instance,
)
from bakemesh.protocol.builder.spec.component import ComponentSpec

log = logging.getLogger(__name__)
WATCHED = 72  # live values that are kept of a component: a crank's 64, and its host's own
LOST_PAUSE_S = 0.1
FIND_PAUSE_S = 5.0
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
        self._unwanted = asyncio.Event()  # the instance that is being launched is to end
        self._shimmed: Shimmed | None = None
        self._starting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # of the instance
        self._ends: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._actor: asyncio.Task[None] | None = None
        self.unheld = ""  # which of its limits the system does not hold

    @property
    def name(self) -> str:
        """Its name."""
        return self.row.name

    @property
    def life(self) -> Life:
        """As it is journaled."""
        return self.row.life

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
                self._unwanted = asyncio.Event()
                self._starting = self._task(self._launch(instance, self.life.spec), self._tasks)
            case End(instance, grace_s):
                self._unwanted.set()
                self._task(self._end(instance, grace_s, self._starting), self._ends)
            case Arm(due):
                self._arm("due", due, Due())
            case Forget():
                self.gone = True
                self.ground.forgotten(self)

    def _task(
        self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]], what: str = "work"
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{what} of component {self.name}")
        among.add(task)
        task.add_done_callback(among.discard)
        return task

    def _arm(self, name: str, at: float, event: Event) -> None:
        if old := self._timers.pop(name, None):
            old.cancel()
        delay = max(0.0, at - self.ground.clock.monotonic())
        self._timers[name] = asyncio.get_running_loop().call_later(delay, self.tell, event)

    def _clear_instance(self) -> None:
        """What served the instance before is over."""
        if timer := self._timers.pop("alive", None):
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        self._shimmed = self._starting = None
        self.watch.clear()

    # -- starting

    async def _launch(self, instance: str, spec: ComponentSpec) -> None:
        """Ends in exactly one of Launched, NotLaunched, Vanished."""
        ground = self.ground
        try:
            if why := launch.missing(spec):
                self.tell(NotLaunched(instance, why))
                return
            if launch.program_of(spec) == launch.HOST:
                ground.nursery.warm()  # comes up meanwhile
            folder = await asyncio.to_thread(launch.prepare, spec, ground.place, instance)
            await self._ensure_posts(spec)
            if self._unwanted.is_set():
                self.tell(NotLaunched(instance, "was not started"))
                return
            process = ProcessSpec(
                launch.argv_of(spec, folder),
                launch.environment_of(spec, ground.place, instance),
                folder / launch.DATA,
            )
            shimmed = await ground.nursery.launch(
                ShimSpec(
                    process=process,
                    folder=folder,
                    instance=instance,
                    module=launch.program_of(spec),
                    memory_max_bytes=spec.memory_max_bytes,
                    cpu_share=spec.cpu_share,
                )
            )
        except KeeperLost as error:
            log.warning("component %s: %s", self.name, error)
            await asyncio.sleep(LOST_PAUSE_S)
            self.tell(await self._find(instance))
        except SpawnRefused as error:
            argv = launch.argv_of(spec, self.folder)
            self.tell(NotLaunched(instance, f"its program cannot be started: {why_refused(argv[0], error)}"))
        except BusError as error:
            self.tell(NotLaunched(instance, f"its durable posts cannot be kept: {error}"))
        except OSError as error:
            what = error.strerror or type(error).__name__
            self.tell(NotLaunched(instance, f"its folder {self.folder} cannot be written: {what}"))
        except Exception as error:
            log.exception("component %s cannot be launched", self.name)
            await sweep_instance(instance)
            self.tell(NotLaunched(instance, f"the Builder failed to launch it: {type(error).__name__}"))
        else:
            self.tell(self._took(instance, shimmed))

    async def _ensure_posts(self, spec: ComponentSpec) -> None:
        """Waits for the stream of what it posts and takes durably; a hub that is away holds no stop up."""
        types = {post.type for post in spec.posts if post.durable}
        types.update(type_ for trigger in spec.triggers for type_ in trigger.durable)
        if types:
            await unless(self._unwanted, ensure_posts(self.ground.bus, sorted(types)))

    def _took(self, instance: str, shimmed: Shimmed) -> Event:
        """Follows a running instance; returns the event that says so."""
        self._shimmed = shimmed
        shimmed.on_survivors = lambda who: self._survive(instance, who)
        self._task(self._mind(instance, shimmed), self._tasks, "minding")
        life, clock = self.life, self.ground.clock
        if Wait.ALIVE in life.waits:
            began = life.began if life.pid == shimmed.pid else clock.monotonic()
            self._arm("alive", began + life.spec.ready_ms / 1000, AliveFor(instance))
        if life.spec.health is not None:
            prober = Prober(
                life.spec,
                instance,
                self.ground.place,
                self.ground.keeper,
                self.ground.bus,
                lambda why: self.tell(ProbeGood(instance) if why == GOOD else ProbeMissed(instance, why)),
                lambda: self.life.state is State.STARTING,
            )
            self._task(prober.run(), self._tasks, "probing")
        if (said := _unheld(life.spec, shimmed.held)) != self.unheld:
            self.unheld = said
            if said:
                log.warning("component %s: %s", self.name, said)
        return Launched(instance, shimmed.pid)

    async def _mind(self, instance: str, shimmed: Shimmed) -> None:
        self.tell(self._exited(instance, await shimmed.ended()))

    async def _end(self, instance: str, grace_s: float, starting: asyncio.Task[None] | None) -> None:
        """Ends the instance that runs, or that is being launched."""
        if starting is not None and not starting.done():
            await asyncio.wait({starting})
        if self.life.instance == instance and self._shimmed is not None:
            swept = await self._shimmed.stop(grace_s)
            if swept.survivors:
                self._survive(instance, swept.survivors)

    def _survive(self, instance: str, survivors: tuple[Survivor, ...]) -> None:
        who = ", ".join(map(str, survivors))
        log.error("component %s: survives KILL: %s", self.name, who)
        self.tell(Lingers(instance, f"survives KILL: {who}"))

    async def kill(self) -> None:
        """Ends what runs of it at once; its row stays as it is."""
        self._unwanted.set()
        if self._starting is not None and not self._starting.done():
            await asyncio.wait({self._starting})
        if self._shimmed is not None:
            await self._shimmed.stop(0.0)

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
            # As one that is being launched: whoever wants it ended waits for what comes of this.
            self._starting = self._task(self._find_again(instance), self._tasks, "finding")

    async def found(self) -> None:
        """Returns once what was left of it runs on or has ended; of an earlier start of the node: ended."""
        if (finding := self._starting) is not None:
            await asyncio.wait({finding})
        await self.until(lambda it: it.gone or it.row.boot == it.ground.boot or not it.life.alive)

    async def _find_again(self, instance: str) -> None:
        """Where a process of it cannot be killed this takes as long as that lives: none may be doubled."""
        while True:
            try:
                event = await self._find(instance)
                break
            except Exception:
                log.exception("component %s cannot be looked for", self.name)
                await asyncio.sleep(FIND_PAUSE_S)
        with contextlib.suppress(Forgotten, JournalClosed, JournalBroken):
            await self.apply(event)

    async def disown(self) -> None:
        """The state folder was copied: what the row says runs is the other one's. It rests."""
        await self.apply(Bygone("the state folder was copied or moved; not started here"))

    async def _find(self, instance: str) -> Event:
        match found := await adopt(self.folder, instance, lambda who: self._survive(instance, who)):
            case Shimmed():
                return self._took(instance, found)
            case ShimExit():
                return self._exited(instance, found)
            case None:
                return Vanished(instance)

    def _exited(self, instance: str, found: ShimExit) -> Exited:
        now = self.ground.clock.wall() / 1e6
        ago_s = 0.0 if found.at is None else max(0.0, now - found.at)
        return Exited(instance, *_told(found), ago_s)

    async def close(self) -> None:
        """Lets it go: what runs runs on, for the next Builder to find."""
        if self._starting is not None and not self._starting.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._starting), LOST_PAUSE_S * 10)
        for timer in self._timers.values():
            timer.cancel()
        tasks = [task for task in (self._actor, *self._tasks, *self._ends) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._refuse(Forgotten(self.name) if self.gone else JournalClosed())
        if self._shimmed is not None:
            self._shimmed.close()

    # -- what is said of it

    def watched(self, key: str, value: str) -> None:
        """A live value of it; the oldest key goes where there are too many."""
        self.watch.pop(key, None)
        self.watch[key] = value
        while len(self.watch) > WATCHED:
            self.watch.pop(next(iter(self.watch)))


def _unheld(spec: ComponentSpec, held: Collection[str]) -> str:
    """Which of its limits the system does not hold here as they are meant; empty where it holds all."""
    said = []
    if spec.memory_max_bytes is not None and "memory" not in held:
        said.append("its memory is looked at once a second (no cgroup that holds memory can be had here)")
    if spec.cpu_share is not None and "cpu-share" not in held:
        said.append("its cpu-share is not held (no cgroup that holds it can be had here)")
    return "; ".join(said)


def _told(found: ShimExit) -> tuple[int, str]:
    """Its exit code, minus the signal after one, and in words."""
    if found.lost:
        return -signal.SIGKILL, "its shim was killed, and all of it with it"
    if found.reason:
        return -(found.signal or signal.SIGKILL), f"killed: {found.reason}"
    if found.signal is not None:
        name = "signal"
        with contextlib.suppress(ValueError):
            name = signal.Signals(found.signal).name
        return -found.signal, f"killed by {name} ({found.signal})"
    code = found.code if found.code is not None else -signal.SIGKILL
    return code, f"exit code {code}"
