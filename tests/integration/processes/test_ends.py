"""How steps end: what is left over, the grace, what was spent, who gives up."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from bakemesh.processes import Keeper, KeeperLost, ProcessSpec
from bakemesh.processes.link import WINDOW
from support.processes import (
    PATH,
    Pipe,
    alive,
    children,
    gone,
    grow,
    new_marker,
    nothing_lives,
    output,
    read_until,
)
from support.waiting import eventually

PYTHON = [sys.executable, "-I", "-S", "-c"]


async def test_a_grandchild_that_holds_the_pipe_does_not_hold_the_end() -> None:
    async with await Keeper.start(new_marker()) as keeper:
        with Pipe() as pipe:
            script = "(setsid sleep 25 &) ; echo said; exit 5"
            minded = await keeper.spawn(ProcessSpec(["sh", "-c", script], PATH), stdout=pipe.writing)
            pipe.given()
            assert (await minded.exited()).code == 5
            os.set_blocking(pipe.reading, False)
            assert os.read(pipe.reading, 100) == b"said\n"
            with pytest.raises(BlockingIOError):
                os.read(pipe.reading, 100)
            assert (await minded.sweep()).killed == 1
            assert await read_until(pipe.reading) == b""


async def test_an_early_end_of_output_is_not_the_end() -> None:
    async with await Keeper.start(new_marker()) as keeper:
        with Pipe() as given, Pipe() as out:
            minded = await keeper.spawn(
                ProcessSpec(["sh", "-c", "exec >&-; read x; exit 6"], PATH), given.reading, out.writing
            )
            out.given()
            assert await read_until(out.reading) == b""
            assert not gone(minded.pid)
            os.write(given.writing, b"go\n")
            assert (await minded.exited()).code == 6


async def test_what_is_left_over_is_killed_and_counted() -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        minded = await grow(keeper, "plain,daemon", 4, marker)
        await eventually(lambda: len(alive(marker)) == 9)
        os.kill(minded.pid, signal.SIGKILL)
        assert (await minded.exited()).signal == signal.SIGKILL
        assert len(alive(marker)) == 8
        swept = await minded.sweep()
        assert (swept.killed, swept.survivors) == (8, ())
        assert alive(marker) == []


async def test_daemons_that_clean_up_have_the_grace_after_the_main_process_ended(tmp_path: Path) -> None:
    cleaning = f"""
import os, signal, time
def clean(*_):
    with open({str(tmp_path / "cleaning")!r}, "w"): pass
    while not os.path.exists({str(tmp_path / "go")!r}): time.sleep(0.01)
    with open({str(tmp_path / "cleaned")!r}, "w"): pass
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, clean)
    os.write(1, b"up")
    time.sleep(25)
    os._exit(1)
time.sleep(25)
"""
    async with await Keeper.start(new_marker()) as keeper:
        with Pipe() as pipe:
            minded = await keeper.spawn(ProcessSpec([*PYTHON, cleaning], PATH), stdout=pipe.writing)
            await read_until(pipe.reading, b"up")
            killing = asyncio.create_task(minded.kill(20))
            assert (await minded.exited()).signal == signal.SIGTERM
            await eventually((tmp_path / "cleaning").exists)
            sweeping = asyncio.create_task(minded.sweep())  # as a step does; the grace stands
            await asyncio.sleep(0.1)
            assert not killing.done()
            (tmp_path / "go").touch()
            assert (await killing).killed == (await sweeping).killed == 0
            assert (tmp_path / "cleaned").exists()


async def test_stopped_processes_are_woken_to_end_within_the_grace(tmp_path: Path) -> None:
    script = f"trap 'echo clean > {tmp_path}/clean; exit 9' TERM; echo up; while :; do sleep 0.05; done"
    async with await Keeper.start(new_marker()) as keeper:
        with Pipe() as pipe:
            minded = await keeper.spawn(ProcessSpec(["sh", "-c", script], PATH), stdout=pipe.writing)
            await read_until(pipe.reading, b"up")
            os.kill(minded.pid, signal.SIGSTOP)
            assert (await minded.kill(20)).survivors == ()
            assert (await minded.exited()).code == 9
            assert (tmp_path / "clean").exists()


async def test_who_ignores_term_is_killed_after_the_grace() -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        minded = await grow(keeper, "ignorer", 3, marker)
        swept = await minded.kill(0.3)
        assert (swept.killed, swept.survivors) == (3, ())
        assert (await minded.exited()).signal == signal.SIGTERM
        assert alive(marker) == []


async def test_a_second_kill_can_be_sooner_but_never_later() -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        minded = await grow(keeper, "ignorer", 3, marker)
        slow = asyncio.create_task(minded.kill(3600))
        await minded.exited()
        later = asyncio.create_task(minded.kill(7200))
        await asyncio.sleep(0.05)
        assert not slow.done()
        assert (await minded.kill(0)).survivors == ()
        assert (await slow).killed == (await later).killed == 3


async def test_cpu_time_is_that_of_every_process_of_the_step() -> None:
    burn = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        while time.process_time() < 0.3: pass
        os._exit(0)
    os._exit(0)
os.wait()
"""
    async with await Keeper.start(new_marker()) as keeper:
        minded = await keeper.spawn(ProcessSpec([*PYTHON, burn], PATH))
        end = await minded.exited()
        await minded.over.wait()
        swept = await minded.sweep()
        assert swept.killed == 0
        assert swept.cpu_s >= 0.3 > end.cpu_s
        assert swept.max_rss_kib >= end.max_rss_kib > 1000


async def test_memory_is_not_that_of_this_process() -> None:
    ballast = bytearray(os.urandom(1 << 20)) * 200
    async with await Keeper.start(new_marker()) as keeper:
        minded = await keeper.spawn(ProcessSpec(["true"], PATH))
        assert (await minded.exited()).max_rss_kib < 40_000 < len(ballast) // 1024


async def test_closing_ends_every_step() -> None:
    marker = new_marker()
    keeper = await Keeper.start(marker)
    steps = [await grow(keeper, "plain,daemon,ignorer,stopped", 3, marker) for _ in range(3)]
    pid = keeper.pid
    await keeper.close()
    assert alive(marker) == []
    assert gone(pid)
    assert {(await step.exited()).signal for step in steps} == {signal.SIGKILL}


@pytest.mark.parametrize("waiting", [0, WINDOW])
async def test_a_start_that_nobody_waits_for_any_more_leaves_nothing(waiting: int) -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        os.kill(keeper.pid, signal.SIGSTOP)
        before = [asyncio.create_task(keeper.spawn(ProcessSpec(["true"], PATH))) for _ in range(waiting)]
        await asyncio.sleep(0)
        given_up = asyncio.create_task(keeper.spawn(ProcessSpec(["sleep", "25"], {**PATH, "M": marker})))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        os.kill(keeper.pid, signal.SIGCONT)
        for start in before:
            assert (await (await start).exited()).code == 0
        await eventually(lambda: keeper.running == 0, what="the end of what was begun")
        await eventually(lambda: not children(keeper.pid))
        assert await output(keeper, ["echo", "next"]) == b"next\n"


async def test_closing_while_starts_wait_answers_them() -> None:
    marker = new_marker()
    keeper = await Keeper.start(marker)
    os.kill(keeper.pid, signal.SIGSTOP)
    starts = [
        asyncio.create_task(keeper.spawn(ProcessSpec(["sh", "-c", f"sleep 25 # {marker}"], PATH)))
        for _ in range(WINDOW + 5)
    ]
    await asyncio.sleep(0)
    closing = asyncio.create_task(keeper.close())
    await asyncio.sleep(0)
    os.kill(keeper.pid, signal.SIGCONT)
    await closing
    ends = await asyncio.gather(*starts, return_exceptions=True)
    assert all(isinstance(end, KeeperLost) for end in ends[WINDOW:])
    await nothing_lives(marker)


async def test_a_child_of_somebody_else_here_is_left_alone() -> None:
    other = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.5; exit 8")
    keeper = await Keeper.start(new_marker())
    os.kill(keeper.pid, signal.SIGKILL)
    await eventually(lambda: keeper.restarts == 1)
    await keeper.close()
    assert await other.wait() == 8
