"""Following a bake to its end: Status to the progress, Data to the output, requests to their answers, Ctrl-C.

    Ctrl-C → Cancel, then wait for `Cancelled` (a waiting recipe's node may have no Builder: said, exit 5)
    Ctrl-C again → stop waiting

Status and Data are two streams, and either may be ahead; a person sees the beginning of a step, its output
and its end in this order. A machine gets each event as it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bakemesh.cli import progress as progress_module
from bakemesh.cli.answers import Answers
from bakemesh.cli.exits import Exit, Stopped
from bakemesh.cli.failures import code_of_result
from bakemesh.cli.output import Writer
from bakemesh.cli.screen import Screen

WAITING_S = 1.0
ORDER_S = 1.0  # order is a courtesy: neither stream waits for the other for longer


class Pace:
    """How far the two streams have been shown: the last seq, the last step that began."""

    def __init__(self) -> None:
        self._seq, self._step = 0, -1
        self._moved = asyncio.Event()

    def data(self, seq: int) -> None:
        """Data was shown."""
        self._seq = seq
        self._moved.set()

    def status(self, status: Any) -> None:
        """A Status was shown."""
        if status.kind == "step" and status.stepindex is not None:
            self._step = max(self._step, status.stepindex)
            self._moved.set()

    async def before_data(self, chunk: Any) -> None:
        """Waits until the step has begun."""
        await self._until(lambda: self._step >= chunk.stepindex)

    async def before_status(self, status: Any) -> None:
        """Waits until the output that a step's end speaks of is shown."""
        if status.kind == "step" and status.lastseq is not None:
            await self._until(lambda: self._seq >= status.lastseq)

    async def _until(self, enough: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(ORDER_S):
                while not enough():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return


class Follower:
    """One bake on one screen."""

    def __init__(self, screen: Screen, progress: progress_module.Quiet, answers: Answers | None) -> None:
        self._screen, self._progress, self._answers = screen, progress, answers
        self._interrupts = 0
        self._interrupted = asyncio.Event()
        self._given_up = asyncio.Event()
        self._answered: set[str] = set()
        self._pace = Pace()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._interrupts += 1
        (self._interrupted if self._interrupts == 1 else self._given_up).set()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._interrupts > 0

    async def follow(self, bake: Any) -> int:
        """Shows the bake until its end and returns the exit code."""
        following = [
            asyncio.create_task(self._status(bake)),
            asyncio.create_task(self._data(bake)),
        ]
        helping = [asyncio.create_task(self._cancel(bake)), asyncio.create_task(self._waiting(bake))]
        given_up = asyncio.create_task(self._given_up.wait())
        done: asyncio.Future[Any] = asyncio.gather(*following)
        enough: list[asyncio.Future[Any]] = [done, given_up]
        try:
            await asyncio.wait([*enough, helping[0]], return_when=asyncio.FIRST_COMPLETED)
            if not done.done() and not given_up.done():
                helping[0].result()  # the Cancel could not be sent: say why
                await asyncio.wait(enough, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise Stopped(
                    Exit.CANCELLED, f"not waited for the end of {bake.recipe_id}; see `bakemesh bakes`"
                )
            done.result()
        finally:
            for task in (*following, *helping, given_up):
                task.cancel()
            await asyncio.gather(*following, *helping, given_up, done, return_exceptions=True)
            self._progress.close()
        return self._end(await bake.outcome())

    async def _status(self, bake: Any) -> None:
        async for status in bake.status():
            if self._screen.machine:
                self._screen.event("status", type=status.type.rpartition(".")[2], **status.entries())
            else:
                await self._pace.before_status(status)
            if not (status.final and status.kind == "outcome"):
                self._progress.show(status)
            self._pace.status(status)
            if status.request is not None:
                await self._answer(bake, status.request)

    async def _data(self, bake: Any) -> None:
        writer = Writer(self._screen, self._progress)
        async for chunk in bake.data():
            if not self._screen.machine:
                await self._pace.before_data(chunk)
            await writer.write(chunk)
            self._pace.data(chunk.seq)

    async def _answer(self, bake: Any, request: str) -> None:
        if request in self._answered:
            return
        data = await self._answers.find(request) if self._answers else None
        if data is None:
            self._progress.say(
                f"waits for data: bakemesh push {bake.recipe_id} --request {request} --file FILE"
            )
            return
        self._answered.add(request)
        result = await bake.push(request, data)
        if not result.accepted:
            raise Stopped(
                code_of_result(result.code),
                f"the data for {request!r} was refused, {result.code}: {result.summary}",
            )

    async def _cancel(self, bake: Any) -> None:
        await self._interrupted.wait()
        self._progress.say(f"cancels {bake.recipe_id}; Ctrl-C again stops waiting")
        result = await bake.cancel()
        if not result.accepted and result.code != "terminal":
            raise Stopped(Exit.FAILED, f"Cancel was refused, {result.code}: {result.summary}")

    async def _waiting(self, bake: Any) -> None:
        await asyncio.sleep(WAITING_S)
        if bake.waiting:
            self._progress.say(
                f"nothing heard of node {bake.node}: the recipe waits in its inbox until a Builder is there"
            )

    def _end(self, outcome: Any) -> int:
        name = outcome.type.rpartition(".")[2]
        if self._screen.machine:
            self._screen.event(
                "end",
                outcome=name,
                code=outcome.code,
                summary=outcome.summary,
                stepindex=outcome.stepindex,
                failedsteps=outcome.failedsteps,
                recipeid=outcome.recipe_id,
            )
        else:
            code = f" ({outcome.code})" if outcome.code else ""
            self._progress.say(f"{name}{code}: {progress_module.one_line(outcome.summary)}")
        if name == "Success":
            return Exit.DONE
        if name == "Cancelled":
            return Exit.CANCELLED
        return Exit.INTEGRITY if outcome.code == "integrity" else code_of_result(outcome.code or "")
