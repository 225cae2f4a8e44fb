"""One instance of a component: launched or found again, minded, probed, ended.

Guarantees: of a launch, and of a search for what a dead Builder left, comes exactly one event. Left out: what
follows from an event (see `core`), what is journaled before anything is launched (see `component`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from bakemesh.builder.components import launch
from bakemesh.builder.components.life import (
    AliveFor,
    Event,
    Exited,
    Launched,
    Life,
    Lingers,
    NotLaunched,
    ProbeGood,
    ProbeMissed,
    Vanished,
    Wait,
)
from bakemesh.builder.components.probe import GOOD, Prober
from bakemesh.builder.components.states import State
from bakemesh.builder.steps.endings import why_refused
from bakemesh.builder.stopping import unless
from bakemesh.bus.errors import BusError
from bakemesh.bus.posts import ensure_posts
from bakemesh.processes import (
    KeeperLost,
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

if TYPE_CHECKING:
    from bakemesh.builder.components.component import Ground

log = logging.getLogger(__name__)
LOST_PAUSE_S = 0.1
FIND_PAUSE_S = 5.0


class Instance:
    """`name` is the journal's. `life`: the component's, now; `unheld`: of the instance before."""

    def __init__(
        self,
        ground: Ground,
        component: str,
        name: str,
        life: Callable[[], Life],
        tell: Callable[[Event], None],
        *,
        unheld: str,
    ) -> None:
        self.ground, self.component, self.name = ground, component, name
        self.folder = ground.place.of(component)
        self.unheld = unheld  # which of its limits the system does not hold
        self._life, self.tell = life, tell
        self._unwanted = asyncio.Event()  # while it is being launched: it is to end
        self._shimmed: Shimmed | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._alive: asyncio.TimerHandle | None = None

    def launch(self, spec: ComponentSpec) -> None:
        """Begins to start it."""
        self._beginning = self._task(self._launch(spec), "launch")

    def find(self) -> None:
        """Begins to look for what a dead Builder left of it; whoever wants it ended waits for the outcome."""
        self._beginning = self._task(self._find_again(), "finding")

    async def begun(self) -> None:
        """Returns once it was launched or found, or neither."""
        if self._beginning is not None:
            await asyncio.wait({self._beginning})

    async def end(self, grace_s: float) -> None:
        """Ends it where it runs, or is being launched or looked for."""
        self._unwanted.set()
        await self.begun()
        if self._shimmed is not None:
            swept = await self._shimmed.stop(grace_s)
            if swept.survivors:
                self._survive(swept.survivors)

    def over(self) -> None:
        """Nothing of it lives: what served it ends."""
        if self._alive is not None:
            self._alive.cancel()
        for task in list(self._tasks):
            task.cancel()
        self._shimmed = None

    async def close(self) -> None:
        """Lets it go: it runs on, for the next Builder to find."""
        shimmed, tasks = self._shimmed, list(self._tasks)
        self.over()
        await asyncio.gather(*tasks, return_exceptions=True)
        if shimmed is not None:
            shimmed.close()

    def _task(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"{what} of component {self.component}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _launch(self, spec: ComponentSpec) -> None:
        """Ends in exactly one of Launched, NotLaunched, Vanished."""
        ground = self.ground
        try:
            if why := launch.missing(spec):
                self.tell(NotLaunched(self.name, why))
                return
            if launch.program_of(spec) == launch.HOST:
                ground.nursery.warm()  # comes up meanwhile
            folder = await asyncio.to_thread(launch.prepare, spec, ground.place, self.name)
            await self._ensure_posts(spec)
            if self._unwanted.is_set():
                self.tell(NotLaunched(self.name, "was not started"))
                return
            process = ProcessSpec(
                launch.argv_of(spec, folder),
                launch.environment_of(spec, ground.place, self.name),
                folder / launch.DATA,
            )
            shimmed = await ground.nursery.launch(
                ShimSpec(
                    process=process,
                    folder=folder,
                    instance=self.name,
                    module=launch.program_of(spec),
                    memory_max_bytes=spec.memory_max_bytes,
                    cpu_share=spec.cpu_share,
                )
            )
        except KeeperLost as error:
            log.warning("component %s: %s", self.component, error)
            await asyncio.sleep(LOST_PAUSE_S)
            self.tell(await self._find())
        except SpawnRefused as error:
            argv = launch.argv_of(spec, self.folder)
            self.tell(NotLaunched(self.name, f"its program cannot be started: {why_refused(argv[0], error)}"))
        except BusError as error:
            self.tell(NotLaunched(self.name, f"its durable posts cannot be kept: {error}"))
        except OSError as error:
            what = error.strerror or type(error).__name__
            self.tell(NotLaunched(self.name, f"its folder {self.folder} cannot be written: {what}"))
        except Exception as error:
            log.exception("component %s cannot be launched", self.component)
            await sweep_instance(self.name)
            self.tell(NotLaunched(self.name, f"the Builder failed to launch it: {type(error).__name__}"))
        else:
            self.tell(self._took(shimmed))

    async def _ensure_posts(self, spec: ComponentSpec) -> None:
        """Waits for the stream of what it posts and takes durably; a hub that is away holds no stop up."""
        types = {post.type for post in spec.posts if post.durable}
        types.update(type_ for trigger in spec.triggers for type_ in trigger.durable)
        if types:
            await unless(self._unwanted, ensure_posts(self.ground.bus, sorted(types)))

    def _took(self, shimmed: Shimmed) -> Event:
        """Follows a running instance; returns the event that says so."""
        self._shimmed = shimmed
        shimmed.on_survivors = self._survive
        self._task(self._mind(shimmed), "minding")
        life, clock = self._life(), self.ground.clock
        if Wait.ALIVE in life.waits:
            began = life.began if life.pid == shimmed.pid else clock.monotonic()
            delay = max(0.0, began + life.spec.ready_ms / 1000 - clock.monotonic())
            self._alive = asyncio.get_running_loop().call_later(delay, self.tell, AliveFor(self.name))
        if life.spec.health is not None:
            prober = Prober(
                life.spec,
                self.name,
                self.ground.place,
                self.ground.keeper,
                self.ground.bus,
                lambda why: self.tell(ProbeGood(self.name) if why == GOOD else ProbeMissed(self.name, why)),
                lambda: self._life().state is State.STARTING,
            )
            self._task(prober.run(), "probing")
        if (said := _unheld(life.spec, shimmed.held)) != self.unheld:
            self.unheld = said
            if said:
                log.warning("component %s: %s", self.component, said)
        return Launched(self.name, shimmed.pid)

    async def _mind(self, shimmed: Shimmed) -> None:
        self.tell(self._exited(await shimmed.ended()))

    def _survive(self, survivors: tuple[Survivor, ...]) -> None:
        who = ", ".join(map(str, survivors))
        log.error("component %s: survives KILL: %s", self.component, who)
        self.tell(Lingers(self.name, f"survives KILL: {who}"))

    async def _find(self) -> Event:
        match found := await adopt(self.folder, self.name, self._survive):
            case Shimmed():
                return self._took(found)
            case ShimExit():
                return self._exited(found)
            case None:
                return Vanished(self.name)

    def _exited(self, found: ShimExit) -> Exited:
        now = self.ground.clock.wall() / 1e6
        ago_s = 0.0 if found.at is None else max(0.0, now - found.at)
        return Exited(self.name, *_told(found), ago_s)

    async def _find_again(self) -> None:
        """Where a process of it cannot be killed this takes as long as that lives: none may be doubled."""
        while True:
            try:
                event = await self._find()
                break
            except Exception:
                log.exception("component %s cannot be looked for", self.component)
                await asyncio.sleep(FIND_PAUSE_S)
        self.tell(event)


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
