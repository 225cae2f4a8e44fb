"""What `<module>` and `<attach>` share: waiting for a component, while its output is passed on.

    until(check) ──→ the component is where it is wanted, or is gone      stop ──→ whatever it is

Guarantees: output comes in the order written, each byte once, over turns of the log; when the wait is over,
what was written until then is passed on before the result. What it was outrun by is said in the summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from bakemesh.builder.components.life import why
from bakemesh.builder.components.output import LogReader
from bakemesh.builder.components.states import State
from bakemesh.builder.steps.base import StepContext, Stop, StopReason

if TYPE_CHECKING:
    from bakemesh.builder.components.component import Component

STREAM = "stdout"  # what a component writes, to either, is one log
SOONEST_S, LATEST_S = 0.02, 0.25  # between two looks at the log


class Watching:
    """One step's look at one component."""

    def __init__(self, context: StepContext, one: Component, *, output: bool) -> None:
        self.context, self.one = context, one
        self.reader = LogReader(one.folder, one.row.mark) if output else None

    async def until(self, check: Callable[[Component], bool], stop: Stop) -> StopReason | None:
        """None once `check` is true or the component is gone; or why the step is to end before that."""
        waiting = asyncio.create_task(self._follow(check), name=f"state of {self.one.name}")
        asked = asyncio.create_task(stop.wait(), name=f"stop beside {self.one.name}")
        copying = asyncio.create_task(self._copy(), name=f"output of {self.one.name}")
        tasks = [waiting, asked, copying]
        try:
            while not (waiting.done() or asked.done()):
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if copying in done:
                    copying.result()  # an output that cannot be kept ends the step
                    tasks.remove(copying)
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)
            if waiting.done():
                await self._rest(asked)
                return None
            return asked.result()
        finally:
            for task in (waiting, asked, copying):
                task.cancel()
            await asyncio.gather(waiting, asked, copying, return_exceptions=True)

    async def _follow(self, check: Callable[[Component], bool]) -> None:
        """Says each new state as the step's progress."""
        seen: State | None = None

        def changed(one: Component) -> bool:
            return one.gone or check(one) or one.life.state is not seen

        while not (self.one.gone or check(self.one)):
            if self.one.life.state is not seen:
                seen = self.one.life.state
                await self.context.progress(None, f"component {self.one.name} is {seen}")
            await self.one.until(changed)

    async def _copy(self) -> None:
        if self.reader is None:
            return
        pause = SOONEST_S
        while True:
            found = False
            for block in self.reader.read():
                await self.context.output.write(STREAM, block)
                found = True
            pause = SOONEST_S if found else min(LATEST_S, pause * 1.5)
            await asyncio.sleep(pause)

    async def _rest(self, asked: asyncio.Task[StopReason]) -> None:
        """What was written until now; a Cancel does not wait for room."""
        if self.reader is None:
            return
        rest = asyncio.create_task(self._read_out(self.reader), name=f"rest of {self.one.name}")
        try:
            await asyncio.wait({rest, asked}, return_when=asyncio.FIRST_COMPLETED)
            if rest.done():
                rest.result()
        finally:
            rest.cancel()
            await asyncio.gather(rest, return_exceptions=True)

    async def _read_out(self, reader: LogReader) -> None:
        for block in reader.read():
            await self.context.output.write(STREAM, block)
        await self.context.output.end(STREAM)

    @property
    def note(self) -> str:
        """What is to be added to the step's summary."""
        if self.reader is None or not self.reader.lost:
            return ""
        return "; some of its output was turned over before it was read, and is lost"


def ready_or_hopeless(one: Component) -> bool:
    """Whether waiting for it to become ready makes no sense any more."""
    return one.life.state in (State.READY, State.QUARANTINED, State.ENDED, State.STOPPED)


def was_ready(one: Component) -> bool:
    """Whether it is ready, or was and has ended well: its work is done."""
    life = one.life
    return not one.gone and (
        life.state is State.READY or (life.state is State.ENDED and life.was_ready and life.exitcode == 0)
    )


def where(one: Component) -> str:
    """In words."""
    if one.gone:
        return f"component {one.name} was removed"
    said = why(one.life, one.ground.clock.wall())
    return f"component {one.name} is {one.life.state}" + (f": {said}" if said else "")
