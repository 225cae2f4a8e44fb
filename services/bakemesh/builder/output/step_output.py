"""The `Output` of one attempt: bytes in, chunks out to the session's sink, in the order in which they were
read.

Guarantees: the sink gets one chunk at a time, and the next only after it returned, so that what waits in the
sink holds back every writer (that is the backpressure); a buffer that nobody writes to goes at its cadence
all the same; a chunk whose delivery was cancelled is delivered first by whoever comes next, so the order
stands (a sink that is cancelled must not have stored its chunk).

Left out: `seq`, journal, room. The sink gives each chunk its number and stores it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from bakemesh.builder.output.cutter import Chunk, Cutter
from bakemesh.protocol.builder.spec.model import Step


@dataclass(frozen=True, slots=True)
class PassedChunk:
    """A child recipe's chunk: passed on as the child cut it, `path` says which step of the child wrote it."""

    stream: str
    data: bytes
    path: str
    finalchunk: bool = False
    partial: bool = False
    aborted: bool = False


Sink: TypeAlias = Callable[[Chunk | PassedChunk], Awaitable[None]]


class StepOutput:
    """Implements `steps.base.Output`. Make it when the attempt begins; `aclose` when it has ended."""

    def __init__(self, cutter: Cutter, clock: Callable[[], float], sink: Sink) -> None:
        """`clock`: monotonic seconds. `sink` returns when the chunk is journaled."""
        self._cutter, self._clock, self._sink = cutter, clock, sink
        self._cut: deque[Chunk | PassedChunk] = deque()
        self._turn = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._flush: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._closed = False

    @classmethod
    def of(cls, step: Step, clock: Callable[[], float], sink: Sink) -> StepOutput:
        """The output of an attempt of `step` that begins now, cut as the recipe says."""
        cutter = Cutter(step.max_data_bytes, step.data_interval_ms / 1000, begun=clock())
        return cls(cutter, clock, sink)

    async def write(self, stream: str, data: bytes) -> None:
        """Takes bytes of `stream`. Returns when they are journaled, or buffered within `max_data_bytes`.

        Raises StreamClosed after `end`, and what the sink raised.
        """
        async with self._turn:
            self._check()
            await self._deliver(self._cutter.feed(stream, data, self._clock()))
            self._set_timer()

    async def end(self, stream: str) -> None:
        """Sends the stream's last chunk. A silent stream has none; a second call does nothing."""
        async with self._turn:
            self._check()
            await self._deliver(self._cutter.close(stream, self._clock()))

    async def passthrough(
        self, stream: str, data: bytes, *, path: str, finalchunk: bool, partial: bool, aborted: bool
    ) -> None:
        """Sends a child recipe's chunk as it is."""
        async with self._turn:
            self._check()
            await self._deliver([PassedChunk(stream, data, path, finalchunk, partial, aborted)])

    async def aclose(self) -> None:
        """Stops the cadence. Never waits for the sink: a stream that was not ended gets no last chunk."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        flush, self._flush = self._flush, None
        if flush is not None:
            flush.cancel()
            with suppress(asyncio.CancelledError):
                await flush

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise RuntimeError("this step's output is closed: its attempt has ended")

    async def _deliver(self, chunks: Iterable[Chunk | PassedChunk]) -> None:
        self._cut.extend(chunks)
        while self._cut:
            # Taken out only after the sink returned: if this writer is cancelled, the next one goes on here.
            await self._sink(self._cut[0])
            self._cut.popleft()

    def _set_timer(self) -> None:
        """One timer, for the buffer that is due first; it goes off idly where a full chunk went meanwhile."""
        due = self._cutter.next_due
        if due is None or self._closed or self._flush is not None:
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - self._clock()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._flush = asyncio.create_task(self._flush_due(), name="step output cadence")

    async def _flush_due(self) -> None:
        try:
            async with self._turn:
                await self._deliver(self._cutter.due(self._clock()))
        except Exception as error:  # noqa: BLE001  whatever the sink raised belongs to the next writer
            self._failure = error
        else:
            self._flush = None
            self._set_timer()
