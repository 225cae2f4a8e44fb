"""All components of a node: made, found, listed, stopped in reverse.

Guarantees: what an earlier Builder of this start of the node left is found before anything is launched
(`start`); one component a name, whose owner is who made it in this start of the node; nobody is stopped
before what depends on it. Left out: one component's life (`component`), who may ask (`orders`, `steps`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from bakemesh.builder.components import launch
from bakemesh.builder.components.boot import end_boot
from bakemesh.builder.components.component import Claim, Component, Ground
from bakemesh.builder.components.errors import CannotRun, Forgotten, NotYours
from bakemesh.builder.components.life import Event, Life, Resume, Stop, Want, why
from bakemesh.builder.components.order import levels
from bakemesh.builder.components.records import Maker, Row, all_rows
from bakemesh.builder.components.states import State
from bakemesh.protocol.builder.messages import clip
from bakemesh.protocol.builder.spec.component import (
    CommandCrank,
    ComponentSpec,
    ScriptCrank,
    matches,
)

log = logging.getLogger(__name__)
REASON_BYTES = 2048  # of a reason and its traceback in SystemStatus
REASONS_BYTES = 128 * 1024  # of all of them
WATCHES_BYTES = 256 * 1024  # of all live values: the whole must fit into one message of the server
FOUND_S = 8.0  # for what an earlier Builder left, before this one takes work
STOP_SLACK_S = 2.0  # beside its grace, for a component to be seen to have ended


class Components:
    """The component host. `on_change`: something that `rows` says is not as it was."""

    def __init__(self, ground: Callable[[Components], Ground]) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self.ground = ground(self)
        self._by_name: dict[str, Component] = {}
        self._rows = 0  # the last number given
        self._turns: dict[str, asyncio.Lock] = {}
        self._tidying: dict[str, asyncio.Task[None]] = {}  # folders of forgotten ones, by name
        self.started = False

    # -- a Builder comes and goes

    async def start(self, *, copied: bool = False) -> None:
        """Finds what an earlier Builder left, and lets it go on; what was lost is ended and started again.

        That is done side by side and waited for up to FOUND_S: one that cannot be ended keeps nobody else.
        `copied`: the state folder is a copy; what its rows say runs belongs to the folder it was copied from.
        """
        for begun in self:  # by a start that was broken off: followed twice, one would be started twice
            await begun.close()
        rows = all_rows(self.ground.journal.db)
        self._rows = max((row.n for row in rows), default=0)
        for row in rows:
            self._open(row)
        if rows:
            log.info("components in the journal: %d", len(rows))
        for folder in launch.unknown(self.ground.place.folder, self._by_name):
            self._tidy(folder.name, self._remove(folder))  # a Builder died before it took it away
        each = list(self._by_name.values())
        await asyncio.gather(*(one.disown() if copied else one.recover() for one in each))
        self.started = True
        await self._found(each)

    async def _found(self, each: list[Component]) -> None:
        finding = {asyncio.create_task(one.found(), name=f"return of {one.name}"): one for one in each}
        if not finding:
            return
        try:
            _, late = await asyncio.wait(finding, timeout=FOUND_S)
        finally:
            for task in finding:
                task.cancel()
        if late:
            names = ", ".join(sorted(finding[task].name for task in late))
            log.error("components of which something is still being ended, the others go on: %s", names)

    async def stop_all(self, reason: str, *, drained: bool = False, end: bool = False) -> None:
        """Ends every component, those first that others do not depend on, each within its shutdown time.

        `drained`: `resume` starts them again. `end`: the node ends; its next start is a new one.
        """
        if end:
            await end_boot(self.ground.journal, self.ground.boot)
        names = [one.name for one in self]
        depends = {one.name: one.life.spec.depends for one in self}
        for group in levels(names, depends):
            members = [self._by_name[name] for name in group if name in self._by_name]
            # In reverse order of their start, journaled together: hundreds are asked as fast as one.
            await asyncio.gather(*(self.ask(one.name, Stop(reason, drained)) for one in members))
            grace_s = max((one.life.spec.shutdown_ms / 1000 for one in members), default=0.0)
            ended = await asyncio.gather(*(self._ended(one, grace_s + STOP_SLACK_S) for one in members))
            late = [one.name for one, over in zip(members, ended, strict=True) if not over]
            if late:
                log.error("components that do not end: %s", ", ".join(late))

    async def kill_all(self) -> None:
        """Kills what still lives of any, after a `stop_all` that was broken off: the machine was too busy."""
        late = [one for one in self if one.life.alive]
        if late:
            log.error(
                "components that did not end in time are killed: %s", ", ".join(one.name for one in late)
            )
        await asyncio.gather(*(one.kill() for one in late))

    async def _ended(self, one: Component, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await one.until(lambda it: not it.life.alive)
        except TimeoutError:
            return False
        return True

    @property
    def stop_s(self) -> float:
        """The longest that `stop_all` takes."""
        depends = {one.name: one.life.spec.depends for one in self}
        graces = {one.name: one.life.spec.shutdown_ms / 1000 for one in self if one.life.alive}
        return sum(
            max(graces[name] for name in group) + STOP_SLACK_S for group in levels(list(graces), depends)
        )

    async def resume(self) -> None:
        """Starts those again that a drain stopped."""
        for one in self:
            await self.ask(one.name, Resume())

    async def close(self) -> None:
        """Lets go of all; what runs runs on, for the next Builder to find."""
        await asyncio.gather(*(one.close() for one in self), *self._tidying.values(), return_exceptions=True)

    # -- who there is

    def __iter__(self) -> Iterator[Component]:
        return iter(list(self._by_name.values()))

    def find(self, name: str) -> Component | None:
        """The component of that name."""
        return self._by_name.get(name)

    def rows(self) -> list[dict[str, Any]]:
        """For SystemStatus, in order of creation."""
        count = max(1, len(self._by_name))
        room = min(REASON_BYTES, REASONS_BYTES // count)
        return [_told(one, room, WATCHES_BYTES // count) for one in self]

    def deliver_to(self, type_: str) -> list[tuple[str, str]]:
        """(component, trigger) of each ready component that asks for a type."""
        return [
            (one.name, trigger.name)
            for one in self
            if one.life.state in (State.READY, State.UNHEALTHY)
            for trigger in one.life.spec.triggers
            if matches(trigger.type, type_)
        ]

    # -- what is wanted of one

    async def create(
        self, spec: ComponentSpec, owner: str, maker: Maker | None = None, *, again: bool = False
    ) -> tuple[Component, bool]:
        """The component as it is wanted, and whether this started or changed it. `again`: the same attempt
        asked for it already, before a restart of the Builder: what it started then is not started twice.

        Raises NotYours, CannotRun.
        """
        if why := launch.missing(spec):
            raise CannotRun(why)
        async with self._turns.setdefault(spec.name, asyncio.Lock()):
            while True:
                if tidying := self._tidying.get(spec.name):
                    await asyncio.wait({tidying})
                one = self._by_name.get(spec.name)
                if one is None:
                    one = self._open(self._new_row(spec, owner))
                elif one.row.boot == self.ground.boot and one.row.owner != owner:
                    raise NotYours(
                        f"component {spec.name} belongs to {one.row.owner}; {owner} cannot change it"
                    )
                elif again and one.row.maker == maker and one.life.spec.digest == spec.digest:
                    return one, False
                before = one.life
                with contextlib.suppress(Forgotten):
                    await one.apply(Want(spec), Claim(owner, maker))
                    changed = before.instance != one.life.instance or before.spec.digest != spec.digest
                    return one, changed or before.state is State.STOPPING

    async def ask(self, name: str, event: Event) -> bool:
        """Tells a component something; False where there is none. It is journaled when this returns."""
        one = self._by_name.get(name)
        with contextlib.suppress(Forgotten):
            if one is not None:
                await one.apply(event)
                return True
        return False

    def _new_row(self, spec: ComponentSpec, owner: str) -> Row:
        self._rows += 1
        return Row(n=self._rows, name=spec.name, owner=owner, boot=self.ground.boot, life=Life(spec=spec))

    def _open(self, row: Row) -> Component:
        one = Component(self.ground, row)
        self._by_name[row.name] = one
        one.open()
        return one

    def forgotten(self, one: Component) -> None:
        """It is out of the journal; nothing of it lives."""
        if self._by_name.get(one.name) is one:
            del self._by_name[one.name]
        self._tidy(one.name, self._end(one))

    def _tidy(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Until it is done no component of that name is made."""
        task = asyncio.create_task(work, name=f"end of component {name}")
        self._tidying[name] = task
        task.add_done_callback(lambda _: self._tidying.pop(name, None))

    async def _remove(self, folder: Path) -> None:
        if not await asyncio.to_thread(launch.remove, folder):
            log.warning("%s is no component's, but a shim has it: it is left", folder)

    async def _end(self, one: Component) -> None:
        await one.close()
        await self._remove(one.folder)
        if (turn := self._turns.get(one.name)) is not None and not turn.locked():
            del self._turns[one.name]


def latest(watch: dict[str, str], room: int) -> dict[str, str]:
    """The live values that were said last, as many as `room` bytes hold. Pure."""
    kept: list[tuple[str, str]] = []
    for key, value in reversed(watch.items()):
        room -= len(f"{key}{value}".encode("utf-8", "replace")) + 4
        if room < 0:
            break
        kept.append((key, value))
    return dict(reversed(kept))


def _told(one: Component, room: int, watch_room: int) -> dict[str, Any]:
    life, spec = one.life, one.life.spec
    reason = why(life, one.ground.clock.wall())
    reason = f"{reason}: {life.report}" if life.report else reason
    if one.unheld and life.alive:
        reason = f"{reason}; {one.unheld}" if reason else one.unheld
    if life.traceback and (left := room - len(reason.encode("utf-8", "replace")) - 8) > 0:
        tail = life.traceback.encode("utf-8", "replace")[-left:].decode("utf-8", "ignore")
        reason += f"\n{tail}"  # the end of a traceback says what it is
    return {
        "name": one.name,
        "state": str(life.state),
        "ready": int(life.state is State.READY),
        "restarts": life.restarts,
        "reason": clip(reason, room),
        "since": life.since,
        "pid": life.pid,
        "digest": spec.digest,
        "owner": one.row.owner,
        "kind": kind_of(spec),
        "watch": latest(one.watch, watch_room),
    }


def kind_of(spec: ComponentSpec) -> str:
    """script, command or service."""
    if isinstance(spec.crank, CommandCrank):
        return "command"
    return "script" if isinstance(spec.crank, ScriptCrank) else "service"
