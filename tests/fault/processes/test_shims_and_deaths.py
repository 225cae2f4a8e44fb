"""kill -9 of the stand-in of the Builder, of its keeper, of shims: components live on or die whole."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bakemesh.cli.running import guard
from bakemesh.processes import (
    Keeper,
    ShimExit,
    Shimmed,
    SpawnRefused,
    adopt,
    reap_strangers,
    records,
    sweep_instance,
)
from bakemesh.processes.cgroup import existing
from support.disks import fill_disk, small_disk
from support.processes import (
    PATH,
    Components,
    alive,
    gone,
    grow,
    grow_component,
    new_marker,
    nothing_lives,
    output,
    owner,
    zombies,
)
from support.waiting import eventually

PYTHON = [sys.executable, "-I", "-S", "-c"]
TREE = "plain,daemon,ignorer,stopped,envless,subreaper"


def kill(*pids: int) -> None:
    """kill -9, all at once: stopped before, so that none sees another's death and acts on it."""
    for pid in pids if len(pids) > 1 else ():
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("killed", ["owner", "keeper, owner", "keeper, minder, owner"])
async def test_a_component_outlives_builder_and_keeper_and_a_step_does_not(
    tmp_path: Path, killed: str
) -> None:
    marker, one, other = new_marker(), new_marker(), new_marker()
    async with owner(marker, kinds=TREE, components=[one, other], home=str(tmp_path)) as standin:
        before = set(alive(one)), set(alive(other))
        pids = {"owner": [standin.pid], "keeper": [standin.keeper], "minder": standin.minders}
        kill(*(pid for word in killed.split(", ") for pid in pids[word]))
        await eventually(lambda: gone(standin.keeper))
        await reap_strangers(marker)
        await nothing_lives(marker)
        assert (set(alive(one)), set(alive(other))) == before
        assert not existing(marker)
        found = await adopt(tmp_path / one, standin.instances[0])
        assert isinstance(found, Shimmed)
        assert (await found.stop(0)).survivors == ()
        assert (await found.ended()).signal == signal.SIGKILL
        assert alive(one) == []
        assert set(alive(other)) == before[1]


async def test_an_end_between_two_builders_is_told_by_the_file(tmp_path: Path) -> None:
    marker, one = new_marker(), new_marker()
    async with owner(marker, components=[one], home=str(tmp_path)) as standin:
        kill(standin.keeper, standin.pid)
        main = records.read_identity(tmp_path / one, standin.instances[0])
        assert main is not None
        os.kill(main.pid, signal.SIGKILL)
        await eventually(lambda: gone(standin.shims[0]), what="the end of the shim")
        found = await adopt(tmp_path / one, standin.instances[0])
        assert isinstance(found, ShimExit)
        assert (found.signal, found.lost) == (signal.SIGKILL, False)
        assert alive(one) == []


async def test_after_the_death_of_a_keeper_its_components_are_controlled_and_others_start(
    tmp_path: Path,
) -> None:
    marker, other = new_marker(), new_marker()
    before = set(zombies(os.getpid()))
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        step = await grow(keeper, "plain", 1, other)
        shimmed = await grow_component(keeper, components, TREE, 2, marker)
        there = set(alive(marker))
        kill(keeper.pid)
        assert (await step.exited()).lost
        await eventually(lambda: keeper.restarts == 1)
        assert await output(keeper, ["echo", "next"]) == b"next\n"
        assert set(alive(marker)) == there
        assert (await (await keeper.launch(components.spec(["sh", "-c", "exit 4"]))).ended()).code == 4
        assert (await shimmed.stop(0.1)).survivors == ()
        assert alive(marker) == []
        assert set(zombies(os.getpid())) <= before


@pytest.mark.parametrize("keeper_dead", [False, True], ids=["keeper lives", "keeper was killed before"])
async def test_when_a_shim_is_killed_all_of_its_component_dies_and_it_is_lost(
    tmp_path: Path, keeper_dead: bool
) -> None:
    marker, other, step_marker = new_marker(), new_marker(), new_marker()
    before = set(zombies(os.getpid()))
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        shimmed = await grow_component(keeper, components, TREE, 2, marker)
        beside = await grow_component(keeper, components, TREE, 2, other)
        if keeper_dead:
            kill(keeper.pid)
            await eventually(lambda: keeper.restarts == 1)
        await grow(keeper, TREE, 1, step_marker)
        there = set(alive(other)), set(alive(step_marker))
        kill(shimmed.shim)
        end = await shimmed.ended()
        assert (end.lost, end.code, end.signal) == (True, None, None)
        assert alive(marker) == []
        assert (set(alive(other)), set(alive(step_marker))) == there
        again = await adopt(tmp_path / marker, shimmed.instance)
        assert isinstance(again, ShimExit)
        assert again.lost
        await beside.stop(0)
        assert alive(other) == []
        assert set(zombies(os.getpid())) <= before


async def test_shim_and_keeper_killed_at_once_leave_nothing_of_the_component(tmp_path: Path) -> None:
    marker = new_marker()
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        shimmed = await grow_component(keeper, components, TREE, 2, marker)
        kill(keeper.pid, shimmed.shim)
        assert (await shimmed.ended()).lost
        assert alive(marker) == []
        await eventually(lambda: keeper.restarts == 1)
        assert await output(keeper, ["echo", "next"]) == b"next\n"


@pytest.mark.parametrize("forgotten", [False, True], ids=["adopted", "swept"])
async def test_when_all_are_killed_at_once_the_next_builder_finds_what_is_left(
    tmp_path: Path, forgotten: bool
) -> None:
    """Whoever cleared its environment is found as well: by the limit that it inherited."""
    marker, one, other = new_marker(), new_marker(), new_marker()
    async with owner(marker, kinds=TREE, components=[one, other], home=str(tmp_path)) as standin:
        there = set(alive(other))
        kill(standin.keeper, standin.shims[0], *standin.minders, standin.pid)
        await eventually(lambda: gone(standin.shims[0]))
        assert alive(one)
        if forgotten:
            swept = await sweep_instance(standin.instances[0])
            assert swept.killed > 0
            assert swept.survivors == ()
        else:
            found = await adopt(tmp_path / one, standin.instances[0])
            assert isinstance(found, ShimExit)
            assert found.lost
        assert alive(one) == []
        assert set(alive(other)) == there
        assert (await sweep_instance(standin.instances[0])).killed == 0


async def test_a_sweep_of_an_instance_that_runs_ends_it_with_its_shim_and_its_exit_is_written(
    tmp_path: Path,
) -> None:
    marker = new_marker()
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        shimmed = await grow_component(keeper, components, TREE, 2, marker)
        assert (await sweep_instance(shimmed.instance)).survivors == ()
        assert alive(marker) == []
        assert gone(shimmed.shim)
        end = await shimmed.ended()
        assert (end.signal, end.lost) == (signal.SIGKILL, False)


async def test_a_shim_that_lost_its_files_is_found_by_the_instance(tmp_path: Path) -> None:
    """As where a Builder was killed before it wrote down what it started, and the folder was removed."""
    marker = new_marker()
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        shimmed = await grow_component(keeper, components, "plain", 2, marker)
        shimmed.close()
        for name in (records.IDENTITY, records.SOCKET):
            (tmp_path / marker / name).unlink()
        found = await adopt(tmp_path / marker, shimmed.instance)
        assert alive(marker) == []
        assert isinstance(found, ShimExit)
        assert gone(shimmed.shim)


async def test_a_stopped_shim_is_woken_to_be_adopted_and_to_stop(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(["sleep", "25"])
        shimmed = await keeper.launch(spec)
        os.kill(shimmed.shim, signal.SIGSTOP)
        found = await adopt(spec.folder, spec.instance)
        assert isinstance(found, Shimmed)
        os.kill(shimmed.shim, signal.SIGSTOP)
        assert (await found.stop(1)).survivors == ()
        assert (await found.ended()).signal == signal.SIGTERM


@pytest.mark.parametrize("grace_s", [0, 0.2])
@pytest.mark.parametrize(
    ("kinds", "n"),
    [("plain", 100), ("bomb", 60), ("comet", 2), ("thread", 10), (f"{TREE},chain", 5)],
    ids=["wide", "bomb", "comet", "thread", "mixed"],
)
async def test_stop_leaves_nothing(tmp_path: Path, kinds: str, n: int, grace_s: float) -> None:
    marker = new_marker()
    async with Components(tmp_path) as components, await Keeper.start(marker) as keeper:
        shimmed = await grow_component(keeper, components, kinds, n, marker)
        assert (await shimmed.stop(grace_s)).survivors == ()
        assert alive(marker) == []
        end = await shimmed.ended()
        assert end.signal in (signal.SIGTERM, signal.SIGKILL)
        assert not end.lost


async def test_who_does_not_die_of_kill_is_named_and_the_end_waits_for_it(tmp_path: Path) -> None:
    freezer = Path("/sys/fs/cgroup/freezer") / new_marker()
    try:
        freezer.mkdir()
        (freezer / "freezer.state").read_text()
    except OSError:
        pytest.skip("no freezer that this user may use: nothing else makes a process unkillable")
    marker = new_marker()
    try:
        async with Components(tmp_path) as components, await Keeper.start(marker) as keeper:
            shimmed = await grow_component(keeper, components, "daemon", 1, marker)
            await eventually(lambda: len(alive(marker)) == 2)
            frozen = next(pid for pid in alive(marker) if pid != shimmed.pid)
            (freezer / "tasks").write_text(str(frozen))
            (freezer / "freezer.state").write_text("FROZEN")
            await eventually(lambda: (freezer / "freezer.state").read_text().strip() == "FROZEN")
            swept = await shimmed.stop(0)
            assert [survivor.pid for survivor in swept.survivors] == [frozen]
            ended = asyncio.create_task(shimmed.ended())
            again = await shimmed.stop(0)  # named at once this time
            assert [survivor.pid for survivor in again.survivors] == [frozen]
            assert not ended.done()
            (freezer / "freezer.state").write_text("THAWED")
            assert (await ended).signal == signal.SIGKILL
            assert gone(frozen)
    finally:
        (freezer / "freezer.state").write_text("THAWED")
        await eventually(lambda: not (freezer / "tasks").read_text())
        freezer.rmdir()


async def test_the_guard_of_up_spares_components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It kills whatever has its token in the environment."""
    token, marker = new_marker(), new_marker()
    monkeypatch.setenv(guard.TOKEN, token)
    async with owner(new_marker(), components=[marker], home=str(tmp_path)) as standin:
        monkeypatch.delenv(guard.TOKEN)
        there = set(alive(marker))
        assert guard.carrying(token) == [standin.pid]
        watching = await asyncio.create_subprocess_exec(
            sys.executable, guard.__file__, token, stdin=subprocess.PIPE
        )
        await watching.communicate(b"")
        assert await standin.process.wait() == -signal.SIGKILL
        await eventually(lambda: gone(standin.keeper))
        assert set(alive(marker)) == there


async def test_a_full_disk_kills_neither_component_nor_shim_and_its_end_is_told(tmp_path: Path) -> None:
    script = "until [ -e go ]; do sleep 0.02; done; seq 1 20000 || exit 3; echo end >&2; exit 7"
    with small_disk(tmp_path / "disk", "4M") as disk:
        async with Components(disk) as components, await Keeper.start(new_marker()) as keeper:
            spec = components.spec(["sh", "-c", script])
            shimmed = await keeper.launch(spec)
            (disk / "go").touch()
            fill_disk(disk)
            (disk / "go").rename(spec.folder / "go")
            end = await shimmed.ended()
            assert end.code == 7
            assert components.text().endswith("19999\n20000\nend\n")
            assert await adopt(spec.folder, spec.instance) == end
            fill_disk(disk)  # what was set aside for the output was given back
            with pytest.raises(SpawnRefused, match="the component's folder does not serve: No space left"):
                await keeper.launch(components.spec(["true"]))


async def test_on_a_full_disk_old_output_makes_way_for_new(tmp_path: Path) -> None:
    """The component would end with another code at the first write that fails."""
    script = """
import os, time
n = 0
def say(): global n; n += 1; assert os.write(1, b"%099d\\n" % n) == 100
for _ in range(8000): say()
while not os.path.exists("go"): say(); time.sleep(0.001)
os._exit(7)
""".replace("say(): global n; n += 1;", "say():\n    global n\n    n += 1\n   ")
    with small_disk(tmp_path / "disk", "4M") as disk:
        async with Components(disk) as components, await Keeper.start(new_marker()) as keeper:
            (disk / "go").touch()
            spec = components.spec([*PYTHON, script], log_bytes=200_000, log_files=3)
            await keeper.launch(spec)
            shimmed = await adopt(spec.folder, spec.instance)
            assert isinstance(shimmed, Shimmed)

            def last() -> int:
                text = components.text()[-200:].split()
                return int(text[-1]) if text else 0

            await eventually(lambda: last() > 8100)
            fill_disk(disk)
            full_at = last()
            # Some times what is set aside, so that room was made in between.
            await eventually(lambda: last() > full_at + 8000, within=60)
            (disk / "go").rename(spec.folder / "go")
            assert (await shimmed.ended()).code == 7


async def test_a_component_whose_builders_come_and_go_is_one(tmp_path: Path) -> None:
    """Adopted over and over, by connections that are dropped at any moment."""
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(["sleep", "25"], env=PATH)
        first = await keeper.launch(spec)
        for _ in range(30):
            attempts = [asyncio.create_task(adopt(spec.folder, spec.instance)) for _ in range(3)]
            await asyncio.sleep(0)
            attempts[0].cancel()
            for found in await asyncio.gather(*attempts, return_exceptions=True):
                if isinstance(found, Shimmed):
                    assert found.pid == first.pid
                    found.close()
                else:
                    assert isinstance(found, asyncio.CancelledError)
        last = await adopt(spec.folder, spec.instance)
        assert isinstance(last, Shimmed)
        await last.stop(1)
        assert await first.ended() == await last.ended()
