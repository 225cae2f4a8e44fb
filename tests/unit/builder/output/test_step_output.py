"""Order, backpressure and cadence of a step's output, with a sink that the test opens and shuts."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from bakemesh.builder.output import Chunk, Cutter, PassedChunk, StepOutput, StreamClosed
from bakemesh.protocol.builder.spec.model import CliStep


class Sink:
    """Stores chunks while it is open; whoever comes while it is shut waits."""

    def __init__(self) -> None:
        self.stored: list[Chunk | PassedChunk] = []
        self.waiting = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._news = asyncio.Event()

    async def __call__(self, chunk: Chunk | PassedChunk) -> None:
        self.waiting += 1
        self._news.set()
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        self.stored.append(chunk)
        self._news.set()

    async def until(self, condition) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def data(self, stream: str) -> bytes:
        return b"".join(chunk.data for chunk in self.stored if chunk.stream == stream)


def output(sink: Sink, max_bytes: int = 10, interval: float = 1000.0, clock=None) -> StepOutput:
    return StepOutput(Cutter(max_bytes, interval, begun=0.0), clock or (lambda: 0.0), sink)


async def test_writing_returns_while_the_buffer_has_room_though_the_sink_is_shut():
    sink = Sink()
    sink.gate.clear()
    out = output(sink)
    async with asyncio.timeout(10):
        await out.write("stdout", b"123456789")
    await out.aclose()
    assert sink.waiting == 0


async def test_a_shut_sink_holds_every_writer_and_the_order_read_stands():
    sink = Sink()
    sink.gate.clear()
    out = output(sink, max_bytes=2)
    writers = [
        asyncio.create_task(out.write(stream, data))
        for stream, data in (("stdout", b"aa"), ("stderr", b"bb"), ("stdout", b"cc"), ("stderr", b"dd"))
    ]
    await sink.until(lambda: sink.waiting)
    assert sink.waiting == 1
    assert not any(writer.done() for writer in writers)
    sink.gate.set()
    await asyncio.gather(*writers)
    assert [chunk.data for chunk in sink.stored] == [b"aa", b"bb", b"cc", b"dd"]
    await out.aclose()


async def test_an_idle_buffer_goes_at_its_cadence_without_another_write():
    sink = Sink()
    loop = asyncio.get_running_loop()
    out = StepOutput(Cutter(1000, 0.01), loop.time, sink)
    await out.write("stdout", b"one")
    await sink.until(lambda: sink.data("stdout") == b"one")
    await out.write("stdout", b"two")
    await sink.until(lambda: sink.data("stdout") == b"onetwo")
    await out.aclose()


async def test_a_buffer_that_is_due_earlier_does_not_wait_for_the_one_before():
    sink = Sink()
    loop = asyncio.get_running_loop()
    cutter = Cutter(1000, 1000.0)
    out = StepOutput(cutter, loop.time, sink)
    await out.write("stdout", b"late")
    cutter._streams["stdout"].last += 1000  # its chunk is far off
    await out.write("stderr", b"x")
    cutter._streams["stderr"].last -= 1000  # and this one's is here
    await out.write("stderr", b"")  # any write sets the timer anew
    await sink.until(lambda: sink.data("stderr") == b"x")
    assert sink.data("stdout") == b""
    await out.aclose()


async def test_the_cadence_waits_for_a_shut_sink_and_loses_nothing():
    sink = Sink()
    sink.gate.clear()
    loop = asyncio.get_running_loop()
    out = StepOutput(Cutter(4, 0.0), loop.time, sink)
    writing = asyncio.create_task(out.write("stdout", b"abc"))
    await sink.until(lambda: sink.waiting)
    ending = asyncio.create_task(out.end("stdout"))
    sink.gate.set()
    await asyncio.gather(writing, ending)
    assert [(chunk.data, chunk.finalchunk) for chunk in sink.stored] == [(b"abc", False), (b"", True)]
    await out.aclose()


async def test_a_cancelled_write_is_delivered_by_the_next_one_in_order():
    sink = Sink()
    sink.gate.clear()
    out = output(sink, max_bytes=2)
    writing = asyncio.create_task(out.write("stdout", b"aabb"))
    await sink.until(lambda: sink.waiting)
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    sink.gate.set()
    await out.write("stdout", b"cc")
    await out.end("stdout")
    assert sink.data("stdout") == b"aabbcc"
    await out.aclose()


async def test_a_childs_chunks_pass_as_they_are_cut():
    sink = Sink()
    out = output(sink, max_bytes=2)
    await out.passthrough("stdout", b"long enough", path="3/0", finalchunk=False, partial=True, aborted=False)
    await out.passthrough("stdout", b"", path="3/0", finalchunk=True, partial=False, aborted=True)
    assert sink.stored == [
        PassedChunk("stdout", b"long enough", "3/0", partial=True),
        PassedChunk("stdout", b"", "3/0", finalchunk=True, aborted=True),
    ]
    await out.aclose()


async def test_a_failing_sink_fails_the_writer_and_one_that_failed_aside_fails_the_next():
    async def broken(_chunk: Chunk | PassedChunk) -> None:
        raise OSError("no room")

    out = StepOutput(Cutter(2, 1000.0), lambda: 0.0, broken)
    with pytest.raises(OSError, match="no room"):
        await out.write("stdout", b"aa")
    await out.aclose()

    loop = asyncio.get_running_loop()
    out = StepOutput(Cutter(100, 0.001), loop.time, broken)
    await out.write("stdout", b"aa")

    async def write_until_it_fails() -> None:
        async with asyncio.timeout(10):
            while True:
                await asyncio.sleep(0)
                await out.write("stderr", b"")

    with pytest.raises(OSError, match="no room"):
        await write_until_it_fails()
    await out.aclose()


async def test_nothing_follows_a_streams_end_nor_the_close():
    sink = Sink()
    out = output(sink)
    await out.write("stdout", b"a")
    await out.end("stdout")
    await out.end("stdout")
    await out.end("stderr")
    with pytest.raises(StreamClosed):
        await out.write("stdout", b"b")
    await out.aclose()
    await out.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await out.write("stderr", b"b")
    assert sink.stored == [Chunk("stdout", b"a", finalchunk=True)]


async def test_closing_never_waits_for_the_sink():
    sink = Sink()
    sink.gate.clear()
    loop = asyncio.get_running_loop()
    out = StepOutput(Cutter(100, 0.001), loop.time, sink)
    await out.write("stdout", b"a")
    await sink.until(lambda: sink.waiting)
    async with asyncio.timeout(10):
        await out.aclose()
    assert sink.stored == []


async def test_a_step_cuts_its_output_as_the_recipe_says():
    sink = Sink()
    step = CliStep(name="s", index=0, line=1, argv=("true",), max_data_bytes=3, data_interval_ms=0)
    out = StepOutput.of(step, lambda: 7.0, sink)
    await out.write("stdout", b"abcde")
    assert [chunk.data for chunk in sink.stored] == [b"abc", b"de"]
    await out.aclose()
