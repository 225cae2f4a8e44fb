"""One attempt of a step that runs a process: `cli` and `code` say what to start, everything else is here.

    spawn ─→ main process runs ─── it ends ──→ 250 ms for the pipes ─→ leftovers swept ─→ result
                    └──────────── stop ──────→ the whole tree killed ─→ what the pipes hold ─→ result

Guarantees: the step ends when its main process ended, whoever still holds its pipes; every byte that the
main process wrote is handed on before the result, in the order read; nothing of the tree is alive
afterwards, or the summary says what is; a child that ignores its stdin neither hangs nor fails the step;
what goes wrong is a result. Left out: timeouts and retries (the session's), the process tree itself
(`bakemesh.processes`).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bakemesh.builder.output import PipeReader
from bakemesh.builder.steps import endings
from bakemesh.builder.steps.base import StepContext, StepResult, Stop, StopReason
from bakemesh.builder.steps.paths import PathRefused, working_folder
from bakemesh.builder.steps.progress import ProgressReporter
from bakemesh.builder.steps.stdin import feed_stdin
from bakemesh.processes import Exit, Minded, ProcessSpec, Refusal, SpawnRefused
from bakemesh.protocol.builder.spec.model import ProcessStep
from bakemesh.protocol.builder.spec.references import ReferenceFailed

PIPES_S = 0.25  # for what is still in the pipes when the main process has ended
SETTLE_S = 2.0  # for news of the main process after its tree was killed


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. `program` is how the recipe calls it, for messages."""

    argv: Sequence[str]
    program: str


class ProcessRun:
    """One attempt; `launch` is asked once, and may raise ReferenceFailed or PathRefused."""

    def __init__(self, context: StepContext, step: ProcessStep, launch: Callable[[], Launch]) -> None:
        self._context, self._step, self._launch = context, step, launch
        self._readers: list[PipeReader] = []
        self._reading: set[asyncio.Task[None]] = set()
        self._aside: list[asyncio.Task[None]] = []
        self._progress: ProgressReporter | None = None

    async def run(self, stop: Stop) -> StepResult:
        """Runs it to its end. Raises only what the output raised; nothing of it is alive then either."""
        if stop.reason is not None:
            return endings.stopped(stop.reason, "before it began")
        try:
            launch = self._launch()
            spec = self._spec(launch)
            stdin = self._stdin()
            if self._step.progress is not None:
                self._progress = ProgressReporter(self._step.progress, self._context.progress)
        except (ReferenceFailed, PathRefused) as error:
            return endings.failed(str(error))
        except re.error as error:
            return endings.failed(f"progress: no regular expression: {error}")
        began = self._context.clock()
        try:
            minded = await self._spawn_unless(stop, spec, stdin)
        except SpawnRefused as error:
            return endings.refused(launch.program, error)
        if minded is None:
            assert stop.reason is not None
            return endings.stopped(stop.reason, "before it began")
        try:
            return await self._follow(minded, stop, began)
        finally:
            await self._leave(minded)

    # -- before

    def _spec(self, launch: Launch) -> ProcessSpec:
        context, step = self._context, self._step
        env = {"PYTHONUNBUFFERED": "1", **context.environment}
        env.update((name, context.expand(value)) for name, value in step.env)
        cwd = None if step.cwd is None else context.expand(step.cwd)
        return ProcessSpec(launch.argv, env, working_folder(context.folder, cwd, written=step.cwd))

    def _stdin(self) -> bytes | None:
        if self._step.stdin_entry is not None:
            return self._context.entry(self._step.stdin_entry)
        return None if self._step.stdin is None else self._context.expand(self._step.stdin).encode()

    async def _spawn_unless(self, stop: Stop, spec: ProcessSpec, stdin: bytes | None) -> Minded | None:
        """Starts it, or None where it is to end before it has begun: a keeper may be slow, or stopped."""
        starting = _task(self._spawn(spec, stdin), f"start of {self._step.name}")
        asked = _task(stop.wait(), f"stop of {self._step.name}")
        try:
            await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
            return starting.result() if starting.done() else None
        finally:
            for task in (starting, asked):
                task.cancel()
            await asyncio.gather(starting, asked, return_exceptions=True)

    async def _spawn(self, spec: ProcessSpec, stdin: bytes | None) -> Minded:
        """Starts it, and what serves our ends of its pipes. Raises SpawnRefused, with no pipe left open."""
        ours: list[int] = []
        theirs: list[int] = []

        stdin_end: int | None = None
        streams = ("stdout",) if self._step.merge_stderr else ("stdout", "stderr")
        try:
            for _ in streams:
                read_end, write_end = os.pipe2(os.O_CLOEXEC)
                ours.append(read_end)
                theirs.append(write_end)
            if stdin is None:
                theirs.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            else:
                read_end, stdin_end = os.pipe2(os.O_CLOEXEC)
                theirs.append(read_end)
                ours.append(stdin_end)
            *outputs, source = theirs
            minded = await self._context.processes.spawn(
                spec, stdin=source, stdout=outputs[0], stderr=outputs[-1]
            )
        except OSError as error:
            _close(ours)
            raise _no_pipes(error) from error
        except BaseException:
            _close(ours)
            raise
        finally:
            _close(theirs)
        for name, fd in zip(streams, ours, strict=False):
            reader = PipeReader(fd, partial(self._take, name))
            self._readers.append(reader)
            self._reading.add(_task(self._read(name, reader), f"{name} of {self._step.name}"))
        if stdin_end is not None:
            self._aside.append(_task(feed_stdin(stdin_end, stdin or b""), f"stdin of {self._step.name}"))
        if self._progress is not None:
            self._aside.append(_task(self._progress.run(), f"progress of {self._step.name}"))
        return minded

    async def _read(self, stream: str, reader: PipeReader) -> None:
        """To the pipe's end. A stream that the process closes early has its last chunk then."""
        await reader.run()
        await self._context.output.end(stream)

    async def _take(self, stream: str, data: bytes) -> None:
        if self._progress is not None:
            self._progress.feed(stream, data)
        await self._context.output.write(stream, data)

    # -- while it runs

    async def _follow(self, minded: Minded, stop: Stop, began: float) -> StepResult:
        exited = _task(minded.exited(), f"exit of {self._step.name}")
        asked = _task(stop.wait(), f"stop of {self._step.name}")
        try:
            await self._first(exited, asked)
            if exited.done():
                return await self._ended(minded, exited.result(), asked, began)
            return await self._kill(minded, exited, asked, began)
        finally:
            for task in (exited, asked):
                task.cancel()
            await asyncio.gather(exited, asked, return_exceptions=True)

    async def _first(self, exited: asyncio.Task[Exit], asked: asyncio.Task[StopReason]) -> None:
        """Returns when the main process ended or a stop came; raises what an output raised before that."""
        reading = set(self._reading)
        while not (exited.done() or asked.done()):
            done, _ = await asyncio.wait({exited, asked, *reading}, return_when=asyncio.FIRST_COMPLETED)
            for task in done & reading:
                task.result()
            reading -= done

    async def _ended(
        self, minded: Minded, found: Exit, asked: asyncio.Task[StopReason], began: float
    ) -> StepResult:
        seconds = self._context.clock() - began
        if self._reading:
            await asyncio.wait(self._reading, timeout=PIPES_S)
        swept = await minded.sweep()
        await self._settle(asked)
        return endings.ended(found, swept, seconds, self._step.success_codes, notes=self._notes())

    async def _kill(
        self, minded: Minded, exited: asyncio.Task[Exit], asked: asyncio.Task[StopReason], began: float
    ) -> StepResult:
        swept = await minded.kill(self._context.kill_grace_s)
        await asyncio.wait({exited}, timeout=SETTLE_S)  # one that cannot be killed has no exit
        seconds = self._context.clock() - began
        await self._settle(asked)
        found = exited.result() if exited.done() else None
        return endings.killed(asked.result(), found, swept, seconds, notes=self._notes())

    async def _settle(self, asked: asyncio.Task[StopReason]) -> None:
        """Waits for the rest of the output; when the Builder stops, not for room that may never come."""
        rest = _task(self._rest_of_output(), f"rest of {self._step.name}")
        try:
            await asyncio.wait({rest, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not rest.done() and asked.result() is StopReason.SHUTDOWN:
                await asyncio.wait({rest}, timeout=SETTLE_S)
                if not rest.done():
                    return
            await rest
        finally:
            rest.cancel()
            await asyncio.gather(rest, return_exceptions=True)

    async def _rest_of_output(self) -> None:
        """Hands on what the pipes hold, and the last chunk of each stream."""
        for reader in self._readers:
            reader.drain()
        await asyncio.gather(*self._reading)
        for stream in ("stdout", "stderr"):
            await self._context.output.end(stream)

    def _notes(self) -> list[str]:
        if self._progress is not None and self._progress.ran_away:
            return ["the progress expression takes too long and was switched off"]
        return []

    # -- after

    async def _leave(self, minded: Minded) -> None:
        """Leaves nothing behind, however `_follow` ended."""
        unfinished = [task for task in (*self._reading, *self._aside) if not task.done()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*self._reading, *self._aside, return_exceptions=True)
        # Answered at once where the tree is gone. Shielded: a cancelled attempt leaves nothing either.
        await asyncio.shield(_task(minded.kill(0.0), f"end of {self._step.name}"))


def _no_pipes(error: OSError) -> SpawnRefused:
    return SpawnRefused(error.errno or 0, Refusal.NO_RESOURCES, f"no pipe for the step: {error}")


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _task(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    return asyncio.create_task(work, name=name)
