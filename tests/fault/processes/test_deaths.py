"""kill -9 of the Builder's stand-in, of its keeper, of minders, of all of them: no step outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bakemesh.processes import Keeper, KeeperLost, ProcessSpec, reap_strangers
from bakemesh.processes.cgroup import StepCgroup, existing
from bakemesh.processes.link import WINDOW
from support.processes import (
    PATH,
    Owner,
    alive,
    gone,
    grow,
    new_marker,
    nothing_lives,
    output,
    owner,
    zombies,
)
from support.waiting import eventually

TREE = "plain,daemon,ignorer,stopped,envless,subreaper"


def kill(*pids: int) -> None:
    """kill -9, all at once: stopped before, so that none sees another's death and acts on it."""
    for pid in pids if len(pids) > 1 else ():
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


async def keepers_are_gone(standin: Owner) -> None:
    """Neither keeper nor minders live."""
    pids = [standin.keeper, *standin.minders]
    await eventually(lambda: all(gone(pid) for pid in pids), what="the end of keeper and minders")


@pytest.fixture(params=[True, False], ids=["cgroup", "no cgroup"])
def cgroup(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Everything holds with and without the optional net."""
    wanted: bool = request.param
    if not wanted:
        monkeypatch.setattr(StepCgroup, "make", lambda token: None)
    elif StepCgroup.make("probe") is None:
        pytest.skip("no cgroup v2 may be made here")
    else:
        for probe in existing("probe"):
            probe.remove()
    return wanted


@pytest.mark.parametrize("steps", [1, 4])
async def test_when_the_builder_is_killed_its_steps_die(steps: int, cgroup: bool) -> None:
    marker = new_marker()
    async with owner(marker, kinds=TREE, steps=steps, cgroup=cgroup) as standin:
        inside = {pid for net in existing(marker) for pid in net.members()}
        assert set(alive(marker)) <= inside if cgroup else inside == set()
        kill(standin.pid)
        await nothing_lives(marker, within=3)
        await keepers_are_gone(standin)
        await eventually(lambda: existing(marker) == [])


async def test_when_builder_and_keeper_are_killed_their_steps_die() -> None:
    marker = new_marker()
    async with owner(marker, kinds=TREE, steps=2) as standin:
        kill(standin.keeper, standin.pid)
        await nothing_lives(marker, within=3)
        await keepers_are_gone(standin)


async def test_when_builder_and_minders_are_killed_their_steps_die() -> None:
    marker = new_marker()
    async with owner(marker, kinds=TREE, steps=2) as standin:
        kill(*standin.minders, standin.pid)
        await nothing_lives(marker, within=3)
        await keepers_are_gone(standin)


async def test_minders_see_the_keepers_death_themselves() -> None:
    """Where the Builder does not come to it: it is stopped."""
    marker = new_marker()
    async with owner(marker, kinds=TREE, steps=2) as standin:
        os.kill(standin.pid, signal.SIGSTOP)
        kill(standin.keeper)
        await nothing_lives(marker, within=3)


async def test_a_stopped_minder_does_not_save_its_step_from_the_builders_death() -> None:
    marker = new_marker()
    async with owner(marker, kinds=TREE, steps=2) as standin:
        os.kill(standin.minders[0], signal.SIGSTOP)
        kill(standin.pid)
        await nothing_lives(marker, within=3)
        await keepers_are_gone(standin)


async def test_nothing_queued_begins_after_the_builders_death(tmp_path: Path) -> None:
    marker = new_marker()
    ran = tmp_path / "ran"
    async with owner(marker, queued=20, file=str(ran)) as standin:
        kill(standin.pid)
        await eventually(lambda: gone(standin.pid))
        os.kill(standin.keeper, signal.SIGCONT)
        await nothing_lives(marker)
        await keepers_are_gone(standin)
        assert not ran.exists()


async def test_when_the_keeper_is_killed_its_steps_end_as_lost_and_a_new_one_comes_up(cgroup: bool) -> None:
    marker = new_marker()
    before = set(zombies(os.getpid()))
    async with await Keeper.start(marker) as keeper:
        steps = [await grow(keeper, TREE, 2, marker) for _ in range(3)]
        dead = keeper.pid
        kill(dead)
        ends = [await step.exited() for step in steps]
        assert {(end.lost, end.code, end.signal) for end in ends} == {(True, None, None)}
        for step in steps:
            assert (await step.sweep()).survivors == ()
        assert alive(marker) == []
        assert await output(keeper, ["echo", "next"]) == b"next\n"
        assert keeper.restarts == 1
        assert keeper.pid != dead
        assert set(zombies(os.getpid())) <= before


async def test_when_keeper_and_minders_are_killed_this_process_kills_the_steps(cgroup: bool) -> None:
    marker = new_marker()
    other = await asyncio.create_subprocess_exec("sleep", "25", start_new_session=True)
    before = set(zombies(os.getpid()))
    async with await Keeper.start(marker) as keeper:
        steps = [await grow(keeper, TREE, 2, marker) for _ in range(3)]
        kill(keeper.pid, *(step.minder for step in steps))
        assert all([(await step.exited()).lost for step in steps])
        assert alive(marker) == []
        assert await output(keeper, ["echo", "next"]) == b"next\n"
        assert set(zombies(os.getpid())) <= before
    assert other.returncode is None
    assert not gone(other.pid)
    other.kill()
    assert await other.wait() == -signal.SIGKILL


async def test_when_a_minder_is_killed_its_step_ends_as_lost_and_the_others_go_on() -> None:
    marker, other = new_marker(), new_marker()
    async with await Keeper.start(marker) as keeper:
        step = await grow(keeper, TREE, 2, marker)
        going_on = await grow(keeper, TREE, 2, other)
        before = set(alive(other))
        kill(step.minder)
        assert (await step.exited()).lost
        assert alive(marker) == []
        swept = await step.sweep()
        assert swept.survivors == ()
        assert swept.killed > 0
        assert set(alive(other)) == before
        assert (await going_on.kill(0)).survivors == ()
        assert not (await going_on.exited()).lost
        await eventually(lambda: not zombies(keeper.pid))


async def test_a_minder_killed_after_the_main_process_ended_does_not_change_how_it_ended() -> None:
    marker = new_marker()
    async with await Keeper.start(marker) as keeper:
        step = await keeper.spawn(ProcessSpec(["sh", "-c", f"sh -c 'sleep 25; : {marker}' & exit 3"], PATH))
        assert (await step.exited()).code == 3
        kill(step.minder)
        assert (await step.sweep()).survivors == ()
        end = await step.exited()
        assert (end.code, end.lost) == (3, False)
        assert alive(marker) == []


async def test_starts_that_a_dying_keeper_had_are_lost_and_the_others_go_to_the_next(tmp_path: Path) -> None:
    async with await Keeper.start(new_marker()) as keeper:
        os.kill(keeper.pid, signal.SIGSTOP)
        script = ["sh", "-c", f"echo ran >> {tmp_path}/ran"]
        starts = [asyncio.create_task(keeper.spawn(ProcessSpec(script, PATH))) for _ in range(WINDOW + 9)]
        await asyncio.sleep(0)
        kill(keeper.pid)
        ends = await asyncio.gather(*starts, return_exceptions=True)
        assert [isinstance(end, KeeperLost) for end in ends] == [True] * WINDOW + [False] * 9
        for end in ends[WINDOW:]:
            assert not isinstance(end, BaseException)
            assert (await end.exited()).code == 0
        assert (tmp_path / "ran").read_text().count("ran") == 9


async def test_the_keeper_is_started_again_as_often_as_it_dies() -> None:
    async with await Keeper.start(new_marker()) as keeper:
        for death in range(1, 5):
            kill(keeper.pid)
            await eventually(lambda death=death: keeper.restarts == death)  # type: ignore[misc]
            assert await output(keeper, ["echo", "next"]) == b"next\n"


async def test_a_builder_that_lives_tells_the_end_of_its_steps_after_its_keepers_death() -> None:
    marker = new_marker()
    async with owner(marker, kinds=TREE, steps=2, ends=True) as standin:
        kill(standin.keeper)
        assert (await standin.tell())["lost"]
        assert (await standin.tell())["lost"]
        assert alive(marker) == []


async def test_when_all_are_killed_at_once_the_next_start_finds_what_is_left(cgroup: bool) -> None:
    marker, bystander = new_marker(), new_marker()
    # Without a cgroup a daemon that cleared its environment cannot be told from a stranger's.
    kinds = TREE if cgroup else TREE.replace(",envless", "")
    async with (
        owner(bystander, kinds="plain") as other,
        owner(marker, kinds=kinds, steps=3, cgroup=cgroup) as standin,
    ):
        before = set(alive(bystander))
        kill(standin.keeper, *standin.minders, standin.pid)
        await keepers_are_gone(standin)
        assert alive(marker)
        swept = await reap_strangers(marker)
        assert alive(marker) == []
        assert swept.survivors == ()
        assert swept.killed > 0
        assert existing(marker) == []
        assert set(alive(bystander)) == before
        assert not gone(other.keeper)
        assert (await reap_strangers(marker)).killed == 0


async def test_stopped_keepers_and_minders_are_woken_to_end_what_they_know() -> None:
    marker = new_marker()
    async with owner(marker, kinds=TREE, steps=2, cgroup=False) as standin:
        for pid in (standin.keeper, *standin.minders):
            os.kill(pid, signal.SIGSTOP)
        kill(standin.pid)
        await eventually(lambda: gone(standin.pid))
        assert alive(marker)
        assert (await reap_strangers(marker)).survivors == ()
        assert alive(marker) == []
        await keepers_are_gone(standin)


async def test_reaping_spares_this_process_and_those_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Builder can itself run inside a step, and with a token that is its own by accident."""
    token = new_marker()
    script = f"""
import asyncio, sys
from bakemesh.processes import reap_strangers
print(asyncio.run(reap_strangers({token!r})).killed)
"""
    import sys

    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        env={**os.environ, "BAKEMESH_STEP_OF": token},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"0\n")
