"""Components below real shims: what they get, how they are found again, how their end is told."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from bakemesh.processes import (
    Keeper,
    ProcessSpec,
    Refusal,
    Shimmed,
    ShimSpec,
    SpawnRefused,
    adopt,
    cgroup,
    records,
)
from support.processes import (
    PATH,
    Components,
    alive,
    children,
    fd_count,
    gone,
    grow_component,
    new_marker,
    nothing_lives,
    zombies,
)
from support.waiting import eventually

PYTHON = [sys.executable, "-I", "-S", "-c"]
SLEEP = ["sleep", "25"]


async def adopted(spec: ShimSpec) -> Shimmed:
    """The component, found again as it runs."""
    found = await adopt(spec.folder, spec.instance)
    assert isinstance(found, Shimmed), found
    return found


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 7", 7, None)]
    + [(f"kill -{number} $$", None, number) for number in (signal.SIGTERM, signal.SIGKILL)],
)
async def test_the_end_is_told_by_the_socket_and_by_the_file(
    tmp_path: Path, script: str, code: int | None, number: int | None
) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(["sh", "-c", script])
        end = await (await keeper.launch(spec)).ended()
        assert (end.code, end.signal, end.lost, end.reason) == (code, number, False, "")
        assert end.at is not None
        assert await adopt(spec.folder, spec.instance) == end
        await eventually(lambda: not zombies(keeper.pid))


async def test_a_component_gets_its_environment_and_nothing_that_dies_with_somebody(tmp_path: Path) -> None:
    env = {"ONE": "1", "BAKEMESH_STEP_OF": "x", "BAKEMESH_KEEPER": "x", "_BAKEMESH_UP": "x"}
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(["/usr/bin/env"], env=env)
        await (await keeper.launch(spec)).ended()
        assert components.text().splitlines() == [f"BAKEMESH_INSTANCE={spec.instance}", "ONE=1"]


async def test_a_component_gets_a_session_null_stdin_one_file_for_output_and_no_descriptor_of_ours(
    tmp_path: Path,
) -> None:
    script = """
import os
print(os.getsid(0) == os.getpid(), os.readlink("/proc/self/fd/0"), os.getcwd(), flush=True)
os.write(2, b"to stderr\\n")
print(sorted(map(int, os.listdir("/proc/self/fd")))[:-1])
print(open("/proc/self/oom_score_adj").read().strip())
"""
    own = int(Path("/proc/self/oom_score_adj").read_text())
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        await (await keeper.launch(components.spec([*PYTHON, script]))).ended()
        first, second, third, fourth = components.text().splitlines()
    assert first == f"True /dev/null {tmp_path}/it"
    assert second == "to stderr"
    assert third == "[0, 1, 2]"
    assert int(fourth) == min(1000, own + 307)


@pytest.mark.parametrize("wanted", [True, False])
async def test_new_privileges_are_kept_from_components_where_wanted(tmp_path: Path, wanted: bool) -> None:
    async with (
        Components(tmp_path) as components,
        await Keeper.start(new_marker(), no_new_privileges=wanted) as keeper,
    ):
        await (await keeper.launch(components.spec(["grep", "NoNewPrivs", "/proc/self/status"]))).ended()
        assert int(components.text().split()[1]) == int(wanted)


async def test_a_shim_holds_nothing_of_the_builder(tmp_path: Path) -> None:
    """A pipe that stayed open in it would keep the Builder's reader waiting for ever."""
    reading, writing = os.pipe()
    stderr = os.dup(2)
    os.dup2(writing, 2)
    try:
        keeper = await Keeper.start(new_marker())
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(writing)
    async with Components(tmp_path) as components:
        async with keeper:
            shimmed = await keeper.launch(components.spec(SLEEP))
            mine = [os.readlink(f"/proc/{shimmed.shim}/fd/{number}") for number in (0, 1, 2)]
            assert mine == ["/dev/null", "/dev/null", str(tmp_path / "it" / "out.log")]
        assert os.read(reading, 1) == b""
        os.close(reading)
        assert os.readlink(f"/proc/{shimmed.shim}/cwd") == "/"
        await shimmed.stop(0)


async def test_a_component_is_found_again_and_is_the_same(tmp_path: Path) -> None:
    async with Components(tmp_path) as components:
        spec = components.spec(["sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done"])
        async with await Keeper.start(new_marker()) as keeper:
            first = await keeper.launch(spec)
            await eventually(lambda: "up" in components.text())
            first.close()
        assert not gone(first.pid)
        second = await adopted(spec)
        assert (second.pid, second.start_time, second.began, second.held) == (
            first.pid,
            first.start_time,
            first.began,
            first.held,
        )
        swept = await second.stop(10)
        assert swept.survivors == ()
        assert (await second.ended()).code == 9
        assert components.text().startswith("up\n")
        await eventually(lambda: gone(first.shim))


async def test_an_end_that_nobody_saw_is_told_to_the_next(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(["sh", "-c", "read line < go; exit 7"])
        os.mkfifo(spec.folder / "go")
        shimmed = await keeper.launch(spec)
        shimmed.close()
        (spec.folder / "go").write_text("\n")
        await eventually(lambda: gone(shimmed.shim))
        found = await adopt(spec.folder, spec.instance)
        assert not isinstance(found, Shimmed)
        assert found is not None
        assert (found.code, found.lost) == (7, False)


async def test_the_newest_connection_counts_and_all_learn_the_end(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(SLEEP)
        first = await keeper.launch(spec)
        second = await adopted(spec)
        third = await adopted(spec)
        assert (await third.stop(5)).survivors == ()
        ends = {await one.ended() for one in (first, second, third)}
        assert len(ends) == 1
        assert ends.pop().signal == signal.SIGTERM


async def test_one_whose_connection_was_taken_over_can_still_stop_it(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(SLEEP)
        first = await keeper.launch(spec)
        second = await adopted(spec)
        await first.stop(5)
        assert (await second.ended()).signal == signal.SIGTERM


async def test_what_the_main_process_leaves_ends_before_the_end_is_told(tmp_path: Path) -> None:
    marker = new_marker()
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        shimmed = await grow_component(keeper, components, "daemon,envless,ignorer,subreaper", 2, marker)
        os.kill(shimmed.pid, signal.SIGKILL)
        end = await shimmed.ended()
        assert alive(marker) == []
        assert (end.signal, end.lost) == (signal.SIGKILL, False)
        assert end.killed > 0


async def test_leftovers_are_asked_before_they_are_killed(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        left = "trap 'echo cleaned; exit' TERM; echo up; while :; do sleep 0.02; done"
        script = f'setsid sh -c "{left}" & until grep -q up out.log; do sleep 0.01; done'
        await (await keeper.launch(components.spec(["sh", "-c", script]))).ended()
        assert components.text().startswith("up\n")
        assert components.text().endswith("cleaned\n")


async def test_a_folder_of_any_length_serves(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["long" * 20] * 4)
    async with Components(deep) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(SLEEP)
        assert len(str(spec.folder / records.SOCKET)) > 300
        shimmed = await keeper.launch(spec)
        found = await adopted(spec)
        assert found.pid == shimmed.pid
        await found.stop(1)


async def test_a_folder_has_one_component_at_a_time(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec, other = components.spec(SLEEP), components.spec(["touch", "ran"])
        shimmed = await keeper.launch(spec)
        with pytest.raises(SpawnRefused, match="a shim that runs has the component's folder") as caught:
            await keeper.launch(other)
        assert caught.value.what is Refusal.STILL_RUNNING
        assert (await adopted(spec)).pid == shimmed.pid
        await shimmed.stop(1)
        await (await keeper.launch(other)).ended()
        assert (other.folder / "ran").exists()


async def test_what_cannot_be_started_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        missing = components.spec(["no-such-program"])
        nowhere = ShimSpec(process=ProcessSpec(["true"], PATH), folder=tmp_path / "nowhere", instance="x")
        for spec, what, number in (
            (missing, Refusal.PROGRAM_MISSING, errno.ENOENT),
            (nowhere, Refusal.BAD_FOLDER, errno.ENOENT),
        ):
            with pytest.raises(SpawnRefused) as caught:
                await keeper.launch(spec)
            assert (caught.value.what, caught.value.errno) == (what, number)
            assert await adopt(spec.folder, spec.instance) is None
        assert sorted(os.listdir(missing.folder)) == ["out.log"]
        await eventually(lambda: not children(keeper.pid))


@pytest.mark.parametrize("instance", ["", "a b", "ä", "x" * 129, "a\nb"])
async def test_an_instance_that_cannot_be_a_name_is_refused(tmp_path: Path, instance: str) -> None:
    with pytest.raises(ValueError, match="visible ASCII"):
        ShimSpec(process=ProcessSpec(["true"], PATH), folder=tmp_path, instance=instance)
    with pytest.raises(ValueError, match="visible ASCII"):
        await adopt(tmp_path, instance)


async def test_what_a_former_instance_left_in_the_folder_is_not_taken_for_this_one(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        former, spec = components.spec(["sh", "-c", "exit 3"]), components.spec(SLEEP)
        await (await keeper.launch(former)).ended()
        assert await adopt(former.folder, spec.instance) is None
        shimmed = await keeper.launch(spec)
        known = await adopt(former.folder, former.instance)
        assert known is None  # its exit was there to be read until the folder was used again
        assert (await adopted(spec)).pid == shimmed.pid
        await shimmed.stop(0)


async def test_a_socket_without_a_shim_is_no_component(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec, next_one = components.spec(SLEEP), components.spec(["true"])
        shimmed = await keeper.launch(spec)
        os.kill(shimmed.shim, signal.SIGKILL)
        assert (await shimmed.ended()).lost
        assert (spec.folder / records.SOCKET).exists()
        assert await adopt(spec.folder, next_one.instance) is None
        assert (await (await keeper.launch(next_one)).ended()).code == 0


@pytest.mark.parametrize("what", ["start time", "shim of another", "other boot", "no process", "nonsense"])
async def test_a_pid_alone_is_never_trusted(tmp_path: Path, what: str) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        other = await keeper.launch(components.spec(SLEEP, "other"))
        text = (tmp_path / "other" / records.IDENTITY).read_text().replace(other.instance, "forged")
        known = records.read_identity(tmp_path / "other", other.instance)
        assert known is not None
        match what:
            case "start time":
                text = text.replace(f"shim_start {known.shim_start}", "shim_start 5")
                text = text.replace("mark ", "mark 0\nwas ")
            case "other boot":
                text = text.replace(records.boot_id(), "another")
            case "no process":
                text = text.replace(f"shim {other.shim}", "shim 99999999")
            case "nonsense":
                text = text.replace(f"shim {other.shim}", "shim many")
        forged = tmp_path / "forged"
        forged.mkdir()
        (forged / records.IDENTITY).write_text(text)
        found = await adopt(forged, "forged")
        assert not isinstance(found, Shimmed)
        assert (found is None) == (what == "nonsense")
        assert found is None or found.lost
        assert not gone(other.pid)
        assert not gone(other.shim)
        await other.stop(0)


async def test_fifty_start_at_once(tmp_path: Path) -> None:
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        before = fd_count()
        specs = [components.spec(["sh", "-c", f"echo {n}; exit {n}"], f"c{n}") for n in range(50)]
        shimmed = await asyncio.gather(*(keeper.launch(spec) for spec in specs))
        ends = await asyncio.gather(*(one.ended() for one in shimmed))
        assert [end.code for end in ends] == list(range(50))
        assert [components.text(f"c{n}") for n in range(50)] == [f"{n}\n" for n in range(50)]
        assert fd_count() == before
        await eventually(lambda: not children(keeper.pid))


async def test_a_caller_who_is_cancelled_has_started_nothing_that_lives_on(tmp_path: Path) -> None:
    marker = new_marker()
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        os.kill(keeper.pid, signal.SIGSTOP)
        task = asyncio.create_task(keeper.launch(components.spec(["sh", "-c", f"sleep 25; : {marker}"])))
        await asyncio.sleep(0)
        task.cancel()
        os.kill(keeper.pid, signal.SIGCONT)
        with pytest.raises(asyncio.CancelledError):
            await task
        await nothing_lives(marker)
        await eventually(lambda: not children(keeper.pid) and not keeper.running)


async def test_a_component_is_none_of_the_running_steps_and_close_spares_it(tmp_path: Path) -> None:
    async with Components(tmp_path) as components:
        async with await Keeper.start(new_marker()) as keeper:
            shimmed = await keeper.launch(components.spec(SLEEP))
            await eventually(lambda: keeper.running == 0)
        assert gone(keeper.pid)
        assert not gone(shimmed.pid)
        await shimmed.stop(0)
        assert not [pid for pid in zombies(os.getpid()) if pid == shimmed.shim]


async def test_large_environments_arrive_whole(tmp_path: Path) -> None:
    env = {f"V{n}": "x" * 60_000 for n in range(5)}
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        await (await keeper.launch(components.spec(["/usr/bin/env"], env=env))).ended()
        assert len(components.text()) > 300_000


async def test_a_tree_that_takes_more_memory_than_it_may_is_killed_and_says_why(tmp_path: Path) -> None:
    eat = "import time; b = bytearray(90 << 20); b[::4096] = b'x' * len(b[::4096]); time.sleep(25)"
    script = f"import os, time\nfor _ in range(2):\n if not os.fork():\n  {eat}\ntime.sleep(25)"
    marker = new_marker()
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        argv = [*PYTHON, script, marker]
        small = await keeper.launch(components.spec(SLEEP, "small", memory_max_bytes=150 << 20))
        shimmed = await keeper.launch(components.spec(argv, memory_max_bytes=150 << 20))
        assert shimmed.held in (("memory",), ("memory-sampled",))
        end = await shimmed.ended()
        assert (end.reason, end.signal) == ("memory limit", signal.SIGKILL)
        assert alive(marker) == []
        assert not gone(small.pid)
        await small.stop(0)
        assert (await small.ended()).reason == ""


async def test_what_is_shared_counts_once(tmp_path: Path) -> None:
    """Twenty forks of one that has 40 MiB are not 800."""
    script = (
        "import os, time\nb = bytearray(40 << 20)\nb[::4096] = b'x' * len(b[::4096])\n"
        "for _ in range(20):\n if not os.fork(): time.sleep(25)\n"
        "print('up', flush=True); time.sleep(25)"
    )
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        shimmed = await keeper.launch(components.spec([*PYTHON, script], memory_max_bytes=200 << 20))
        await eventually(lambda: "up" in components.text())
        looks = [Path(f"/proc/{shimmed.shim}/stat").read_text().rpartition(") ")[2].split()[11:13]]

        def looked_again() -> bool:
            now = Path(f"/proc/{shimmed.shim}/stat").read_text().rpartition(") ")[2].split()[11:13]
            return sum(map(int, now)) >= sum(map(int, looks[0])) + 3  # ticks: it has read the tree since

        await eventually(looked_again, what="a look at the memory")
        assert not gone(shimmed.pid)
        await shimmed.stop(0)
        assert (await shimmed.ended()).reason == ""


async def test_only_what_the_system_holds_is_said_to_be_held(tmp_path: Path) -> None:
    base = cgroup.with_controllers({"cpu"}, cgroup.own_folder())
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        shimmed = await keeper.launch(components.spec(SLEEP, cpu_share=0.5))
        assert shimmed.held == (("cpu-share",) if base else ())
        await shimmed.stop(0)


async def test_a_cgroup_made_for_limits_holds_the_component_alone_and_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without controllers will do to see that: they are then not claimed to hold anything."""
    own = cgroup.own_folder()
    if own is None or not os.access(own, os.W_OK):
        pytest.skip("no cgroup v2 may be made here")
    monkeypatch.setattr(cgroup, "with_controllers", lambda wanted, folder: own if wanted else None)
    marker = new_marker()
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(["sh", "-c", f"sleep 25 & sleep 25; : {marker}"], memory_max_bytes=1 << 30)
        made = cgroup.StepCgroup(own / cgroup.component_folder_name(spec.instance))
        shimmed = await keeper.launch(spec)
        await eventually(lambda: len(made.members()) == 3)
        assert set(alive(marker)) <= set(made.members())
        assert not made.holds(shimmed.shim)
        assert shimmed.held in (("memory",), ("memory-sampled",))
        await shimmed.stop(0)
        assert not made.folder.exists()


async def test_a_cgroup_that_cannot_be_used_holds_nothing_and_hinders_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "with_controllers", lambda wanted, folder: tmp_path if wanted else None)
    async with Components(tmp_path) as components, await Keeper.start(new_marker()) as keeper:
        spec = components.spec(["sh", "-c", "exit 7"], memory_max_bytes=1 << 30, cpu_share=0.5)
        shimmed = await keeper.launch(spec)
        assert shimmed.held == ("memory-sampled",)
        assert (await shimmed.ended()).code == 7
        assert os.listdir(tmp_path) == ["it"]


async def test_a_shim_whose_folder_was_removed_ends_with_its_component(tmp_path: Path) -> None:
    async with Components(tmp_path) as components:
        async with await Keeper.start(new_marker()) as keeper:
            shimmed = await keeper.launch(components.spec(SLEEP))
            shimmed.close()
        shutil.rmtree(tmp_path / "it")
        os.kill(shimmed.pid, signal.SIGTERM)
        await eventually(lambda: gone(shimmed.pid) and gone(shimmed.shim), what="the end of both")
