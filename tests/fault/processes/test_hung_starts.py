"""A start that the system holds, as a dead network mount does: nobody waits for it for ever.

A write lease on the program makes exec wait for whoever holds it, for 45 s by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakemesh.processes import Keeper, KeeperLost, ProcessSpec
from support.processes import PATH, alive, children, new_marker, nothing_lives, output
from support.waiting import eventually


@contextlib.contextmanager
def held(program: Path) -> Iterator[Path]:
    """A program whose exec waits until this is left."""
    program.write_text("#!/bin/sh\nexec sleep 25\n")
    program.chmod(0o755)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent to the holder when somebody waits
    fd = os.open(program, os.O_RDWR)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield program
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)


def hangs(keeper: Keeper) -> bool:
    """Whether a minder has a child, which is in its exec, and nothing was told of it yet."""
    return any(children(minder) for minder in children(keeper.pid))


async def test_a_hung_start_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        with held(tmp_path / marker) as program:
            start = asyncio.create_task(keeper.spawn(ProcessSpec([str(program)], PATH)))
            await eventually(lambda: hangs(keeper))
            assert await output(keeper, ["echo", "others start"]) == b"others start\n"
            assert not start.done()
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
            await eventually(lambda: keeper.running == 0)
            await eventually(lambda: not children(keeper.pid))
        assert alive(marker) == []
        assert keeper.restarts == 0
        assert await output(keeper, ["echo", "next"]) == b"next\n"


async def test_closing_does_not_wait_for_a_hung_start(tmp_path: Path) -> None:
    marker = new_marker()
    keeper = await Keeper.start(marker)
    with held(tmp_path / marker) as program:
        start = asyncio.create_task(keeper.spawn(ProcessSpec([str(program)], PATH)))
        await eventually(lambda: hangs(keeper))
        await keeper.close()
        with pytest.raises(KeeperLost):
            await start
        assert alive(marker) == []
    await nothing_lives(marker)


async def test_the_keepers_death_ends_a_hung_start(tmp_path: Path) -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        with held(tmp_path / marker) as program:
            start = asyncio.create_task(keeper.spawn(ProcessSpec([str(program)], PATH)))
            await eventually(lambda: hangs(keeper))
            os.kill(keeper.pid, signal.SIGKILL)
            with pytest.raises(KeeperLost):
                await start
            assert alive(marker) == []
        assert await output(keeper, ["echo", "next"]) == b"next\n"
