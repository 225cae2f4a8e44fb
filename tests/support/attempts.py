"""One attempt of a step, run without a session: real keeper and processes, a sink that the test reads.

    attempt = Attempt(keeper, tmp_path, cli("/bin/echo", "hi"))
    result = await attempt.run()

Every summary that an attempt says is held against `attempt.canary`, which children print (`$CANARY`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bakemesh.builder.output import Chunk, PassedChunk, StepOutput
from bakemesh.builder.steps import runner_for
from bakemesh.builder.steps.base import Children, StepContext, StepResult, Stop, StopReason
from bakemesh.processes import Keeper
from bakemesh.protocol.builder.spec.model import CliStep, CodeStep, Step
from bakemesh.protocol.builder.spec.references import Values, expand
from bakemesh.protocol.identity import Identity
from support.canary import canary, traces

IDENTITY = Identity("boss", "test", "boss-test-1", "alpha", "a1")


def cli(*argv: str, **more: Any) -> CliStep:
    """A `<cli>` with these arguments."""
    return CliStep(**{"name": "step", "index": 0, "line": 1, "argv": argv, **more})


def shell(text: str, **more: Any) -> CliStep:
    """A `<cli shell="yes">` with this text as the shell is to read it."""
    return cli(text.replace("$", "$$"), shell=True, **more)


def code(source: str, language: str = "python", **more: Any) -> CodeStep:
    """A `<code>`."""
    return CodeStep(**{"name": "step", "index": 0, "line": 1, "language": language, "source": source, **more})


class Pushed:
    """Pushes, set by the test."""

    def __init__(self) -> None:
        self.answers: dict[str, asyncio.Future[bytes]] = {}

    def _of(self, request: str) -> asyncio.Future[bytes]:
        return self.answers.setdefault(request, asyncio.get_running_loop().create_future())

    def push(self, request: str, data: bytes) -> None:
        self._of(request).set_result(data)

    async def wait(self, request: str) -> bytes:
        return await asyncio.shield(self._of(request))


class Attempt:
    """An attempt to be run once. `gate` shut holds back every chunk, as a full store does."""

    def __init__(
        self,
        keeper: Keeper,
        folder: Path,
        step: Step,
        *,
        params: Mapping[str, Any] | None = None,
        keep: bool = True,
        children: Children | None = None,
    ) -> None:
        self.canary = canary()
        self.step, self.stop = step, Stop()
        self.chunks: list[Chunk | PassedChunk] = []
        self.counted: dict[str, int] = {}
        self.percents: list[int | None] = []
        self.said: list[str] = []
        self.asked: list[str] = []
        self.entries: dict[str, bytes] = {}
        self.pushed = Pushed()
        self.gate = asyncio.Event()
        self.gate.set()
        self.wrote = asyncio.Event()
        self._keep = keep
        values = Values("alpha", "a1", IDENTITY.recipe_id, self.entries, {}, params or {})
        self.output = StepOutput.of(step, asyncio.get_running_loop().time, self._sink)
        self.context = StepContext(
            identity=IDENTITY,
            step=step,
            attempt=1,
            folder=folder,
            expand=lambda text: expand(text, values),
            output=self.output,
            progress=self._progress,
            ask=self._ask,
            pushes=self.pushed,
            keep_entry=self._keep_entry,
            entry=lambda name: self.entries.get(name, b""),
            processes=keeper,
            environment={"PATH": os.environ["PATH"], "CANARY": self.canary},
            kill_grace_s=0.5,
            params=params or {},
            children=children,
        )

    async def run(self, within: float = 60.0) -> StepResult:
        """Runs it to its end; fails where it does not end, leaks, or does not close its streams."""
        try:
            async with asyncio.timeout(within):
                result = await runner_for(self.step).run(self.context, self.stop)
        finally:
            await self.output.aclose()
        said = "\n".join([result.summary, *self.said]).encode()
        assert not [mark for mark in traces(self.canary) if mark in said], result.summary
        assert len(result.summary.encode()) <= 512
        for stream in {chunk.stream for chunk in self.chunks if isinstance(chunk, Chunk)}:
            finals = [chunk.finalchunk for chunk in self.chunks if chunk.stream == stream]
            assert finals == [False] * (len(finals) - 1) + [True], finals
        return result

    async def stopped(self, reason: StopReason, *, when: bytes = b"ready") -> StepResult:
        """Runs it and stops it once stdout holds `when`."""
        running = asyncio.create_task(self.run())
        try:
            async with asyncio.timeout(20):
                while when not in self.data("stdout"):
                    assert not running.done(), running.result()
                    self.wrote.clear()
                    await self.wrote.wait()
            self.stop.request(reason)
            return await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def data(self, stream: str = "stdout") -> bytes:
        """What the step wrote."""
        return b"".join(chunk.data for chunk in self.chunks if chunk.stream == stream)

    async def _sink(self, chunk: Chunk | PassedChunk) -> None:
        await self.gate.wait()
        self.counted[chunk.stream] = self.counted.get(chunk.stream, 0) + len(chunk.data)
        if self._keep:
            self.chunks.append(chunk)
        self.wrote.set()

    async def _progress(self, percent: int | None, summary: str | None) -> None:
        self.percents.append(percent)
        if summary is not None:
            self.said.append(summary)

    async def _ask(self, request: str) -> None:
        self.asked.append(request)

    async def _keep_entry(self, name: str, data: bytes) -> None:
        self.entries[name] = data


@asynccontextmanager
async def keeping() -> AsyncIterator[Keeper]:
    """A keeper; every step must be over when it closes."""
    keeper = await Keeper.start(canary())
    try:
        yield keeper
        assert keeper.running == 0, "a step is still alive"
    finally:
        await keeper.close()
