"""The group of components of one `up`: started in order, kept, stopped in reverse.

    start c1, ready → start c2, ready → … → all ready → stop asked for, --for, or one let be → stop …, c2, c1

A component that dies is restarted by itself, the others stay; one that its policy lets be ends the whole
group. A member may be started beside the one before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal

from bakemesh.cli.running.component import Component
from bakemesh.cli.running.keeping import Kept, Tell, What
from bakemesh.restart import Policy


class Group:
    """Runs components. `stop` and `kill` may be asked for at any time, from a signal's handler too."""

    def __init__(
        self,
        members: Sequence[tuple[Component, Policy]],
        tell: Tell,
        *,
        beside: Collection[str] = (),
        last: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`beside`: names of members that are started with the one before them, not after it is ready.
        `last` is awaited when all have ended, however that came about.
        """
        self._kept = [Kept(component, policy, tell) for component, policy in members]
        self._beside, self._last = frozenset(beside), last
        self.let_be: str | None = None  # the name of the member that was let be
        self._tell = tell
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[int]] = []
        self._ending: asyncio.Task[None] | None = None
        self._forced = False

    def stop(self) -> None:
        """An ordered end; asked again, a forced one."""
        if not self._stop.is_set():
            self._stop.set()
            return
        self._forced = True
        if self._ending is not None:
            self._ending.cancel()

    async def run(self, all_ready: Callable[[], None], for_s: float | None) -> int | None:
        """Runs until the end. Returns the exit code of a component that was let be, else None.

        Raises what a component's first start raises.
        """
        try:
            return await self._run(all_ready, for_s)
        finally:
            await self._end()

    async def _run(self, all_ready: Callable[[], None], for_s: float | None) -> int | None:
        stopping = asyncio.create_task(self._stop.wait())
        try:
            for number, kept in enumerate(self._kept):
                self._tasks.append(asyncio.create_task(kept.run()))
                following = self._kept[number + 1 : number + 2]
                if following and following[0].component.name in self._beside:
                    continue
                for each in self._kept[: number + 1]:
                    await self._until_ready(each, stopping)
                    if (code := self._let_be()) is not None or stopping.done():
                        return code
            all_ready()
            await asyncio.wait([stopping, *self._tasks], timeout=for_s, return_when=asyncio.FIRST_COMPLETED)
            return self._let_be()
        finally:
            stopping.cancel()

    async def _until_ready(self, kept: Kept, stopping: asyncio.Task[Literal[True]]) -> None:
        if kept.was_ready:
            return
        ready = asyncio.create_task(kept.ready.wait())
        try:
            await asyncio.wait([ready, stopping, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()

    def _let_be(self) -> int | None:
        for kept, task in zip(self._kept, self._tasks, strict=False):
            if task.done():
                code = task.result()
                self.let_be = kept.component.name
                return code
        return None

    async def _end(self) -> None:
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._ending = asyncio.create_task(self._stop_in_reverse())
        if self._forced:
            self._ending.cancel()
        await asyncio.wait([self._ending])
        forced = self._ending.cancelled()
        if forced:
            for kept in reversed(self._kept):
                await kept.component.kill()
        if self._last is not None:
            await self._last()
        if not forced:
            self._ending.result()

    async def _stop_in_reverse(self) -> None:
        for kept in reversed(self._kept):
            if await kept.component.stop():
                self._tell(What.STOPPED, kept.component, "stopped", {})
