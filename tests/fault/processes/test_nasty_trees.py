"""Trees that try to get away: after `kill` and `sweep` nothing of them lives, by a scan for a marker."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bakemesh.keeper import tree
from bakemesh.processes import Keeper
from support.processes import alive, gone, grow, new_marker, zombies
from support.waiting import eventually

TREES = [
    ("plain", 10),
    ("plain", 100),
    ("daemon", 20),
    ("envless", 20),
    ("ignorer", 20),
    ("stopped", 10),
    ("chain", 100),
    ("bomb", 60),
    ("comet", 2),
    ("subreaper", 20),
    ("thread", 10),
    ("plain,daemon,envless,ignorer,stopped,subreaper", 5),
]
IDS = [f"{kinds}-{n}" for kinds, n in TREES]


@pytest.mark.parametrize("grace_s", [0, 0.2])
@pytest.mark.parametrize(("kinds", "n"), TREES, ids=IDS)
async def test_kill_leaves_nothing(kinds: str, n: int, grace_s: float) -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        minded = await grow(keeper, kinds, n, marker)
        assert alive(marker)
        swept = await minded.kill(grace_s)
        assert alive(marker) == []
        assert swept.survivors == ()
        assert (await minded.exited()).signal in (signal.SIGTERM, signal.SIGKILL)
        await eventually(lambda: not zombies(keeper.pid))


@pytest.mark.parametrize(("kinds", "n"), TREES, ids=IDS)
async def test_sweep_leaves_nothing_of_what_the_main_process_left(kinds: str, n: int) -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        minded = await grow(keeper, kinds, n, marker)
        os.kill(minded.pid, signal.SIGKILL)
        swept = await minded.sweep()
        assert alive(marker) == []
        assert swept.survivors == ()
        assert swept.killed > 0


async def test_a_sweep_of_one_step_leaves_the_others_alone() -> None:
    marker, other = new_marker(), new_marker()
    async with await Keeper.start(marker) as keeper:
        minded = await grow(keeper, "daemon,envless,subreaper", 5, marker)
        await grow(keeper, "daemon,envless,subreaper", 5, other)
        before = set(alive(other))
        await minded.kill(0)
        assert alive(marker) == []
        assert set(alive(other)) == before


async def test_without_the_kernels_lists_of_children_the_scan_finds_them_all() -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        minded = await grow(keeper, "plain,daemon,chain,thread", 5, marker)

        def walk(children_of: object) -> set[int]:
            found: set[int] = set()
            tree.fell(minded.minder, children_of, lambda pid, _: found.add(pid))  # type: ignore[arg-type]
            return found

        await eventually(lambda: walk(tree.listed) == set(alive(marker)))
        assert walk(tree.scanned()) == walk(tree.listed)
        await minded.kill(0)
        assert alive(marker) == []


async def test_many_trees_are_killed_at_once() -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        steps = [await grow(keeper, "plain,daemon", 2, marker) for _ in range(16)]
        swept = await asyncio.gather(*(step.kill(0) for step in steps))
        assert alive(marker) == []
        assert {one.survivors for one in swept} == {()}


async def test_who_does_not_die_of_kill_is_named_and_the_killing_goes_on() -> None:
    freezer = Path("/sys/fs/cgroup/freezer") / new_marker()
    try:
        freezer.mkdir()
        (freezer / "freezer.state").read_text()
    except OSError:
        pytest.skip("no freezer that this user may use: nothing else makes a process unkillable")
    marker = new_marker()
    try:
        async with await Keeper.start(marker) as keeper:
            minded = await grow(keeper, "daemon", 1, marker)
            await eventually(lambda: len(alive(marker)) == 2)
            frozen = next(pid for pid in alive(marker) if pid != minded.pid)
            (freezer / "tasks").write_text(str(frozen))
            (freezer / "freezer.state").write_text("FROZEN")
            await eventually(lambda: (freezer / "freezer.state").read_text().strip() == "FROZEN")
            swept = await minded.kill(0)
            assert [survivor.pid for survivor in swept.survivors] == [frozen]
            assert swept.survivors[0].state == "D"
            assert (await minded.exited()).signal == signal.SIGKILL
            assert not minded.over.is_set()
            (freezer / "freezer.state").write_text("THAWED")
            await eventually(lambda: gone(frozen))
            await minded.over.wait()
            assert (await minded.sweep()).survivors == ()
    finally:
        (freezer / "freezer.state").write_text("THAWED")
        await eventually(lambda: not (freezer / "tasks").read_text())
        freezer.rmdir()
