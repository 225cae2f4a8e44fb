"""What may die, dies: Builder, keeper, shim, component, bus, disk. No component is ever there twice, none is
lost, and each is what its policy says.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bakemesh.protocol.builder.messages import BakeSuccess
from bakemesh.supervisor import Supervisor
from support import stuck
from support.builder import RunningBuilder
from support.disks import fill_disk, small_disk
from support.house import Gate
from support.mesh import Mesh, mesh
from support.modules import (
    SLEEP,
    Board,
    attach,
    board,
    end_everything,
    everything_of,
    instances,
    module,
    order,
    recipe,
    rows_in,
    shim_of,
)
from support.processes import children, gone
from support.waiting import eventually

FIVE = ("a", "b", "c", "d", "e")


class Scene:
    """A mesh with one Builder; whatever of its components lives at the end is ended."""

    def __init__(self, net: Mesh, boss: Supervisor, seen: Board) -> None:
        self.net, self.boss, self.seen = net, boss, seen

    @property
    def node(self) -> RunningBuilder:
        return self.net.node

    @property
    def state(self) -> Path:
        return self.net.node.state

    async def up(self, *steps: str) -> None:
        bake = await self.boss.bake(recipe(*steps), node_id="alpha")
        outcome = await asyncio.wait_for(bake.outcome(), 30)
        assert isinstance(outcome, BakeSuccess), outcome

    def pids(self, *names: str) -> dict[str, list[int]]:
        return {name: instances(name, self.state) for name in names}

    async def ready(self, *names: str) -> dict[str, int]:
        """Pids by name, once all are ready and there is exactly one of each."""
        for name in names:
            await self.seen.until(name, "ready", within=30)
        found = {name: (self.seen.row(name) or {})["pid"] for name in names}
        assert self.pids(*names) == {name: [pid] for name, pid in found.items()}
        return found

    def clear(self) -> None:
        """Forgets what was said, so that only what is said from now on counts."""
        self.seen.latest.clear()
        self.seen.states.clear()


@asynccontextmanager
async def scene(folder: Path, *flags: str) -> AsyncIterator[Scene]:
    async with (
        mesh(folder, "--operator", "ops", *flags, witnesses=("witness",)) as net,
        net.supervisor("boss") as boss,
        net.connect("witness") as bus,
        board(bus) as seen,
    ):
        try:
            yield Scene(net, boss, seen)
        finally:
            if net.node.process is not None and net.node.process.returncode is None:
                await net.node.stop()
            await end_everything(net.node.state)


# -- the Builder


async def test_a_builder_that_is_killed_finds_its_components_again_the_same_and_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.up(*(module(name) for name in FIVE))
        before = await here.ready(*FIVE)
        boot = here.seen.latest["alpha"].boot
        for _ in range(2):
            await here.node.kill9()
            assert here.pids(*FIVE) == {name: [pid] for name, pid in before.items()}
            here.clear()
            await here.node.start()
            assert await here.ready(*FIVE) == before
            assert here.seen.latest["alpha"].boot == boot, "a crash is no new start of the node"
        os.kill(before["c"], signal.SIGKILL)
        row = await here.seen.until("c", lambda row: row["state"] == "ready" and row["pid"] != before["c"])
        assert row["restarts"] == 1, "found again, they are under their policy as before"


async def test_what_ended_while_there_was_no_builder_is_judged_by_its_policy(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with scene(tmp_path) as here:
        await here.up(
            module("ends", f"{gate.wait}; exit 5", restart="never"),
            module("again", f"if [ ! -e {gate.path} ]; then {gate.wait}; exit 1; fi; {SLEEP}"),
        )
        before = await here.ready("ends", "again")
        await here.node.kill9()
        gate.open()
        await eventually(lambda: all(gone(pid) for pid in before.values()), what="their ends")
        here.clear()
        await here.node.start()
        assert (await here.seen.until("ends", "ended"))["reason"] == "exit code 5"
        assert (await here.ready("again"))["again"] != before["again"]
        assert (here.seen.row("again") or {})["restarts"] == 1


async def test_a_builder_killed_between_the_journal_and_the_launch_launches_once(tmp_path: Path) -> None:
    """The keeper is stopped, so that the Builder stands between the two."""
    async with scene(tmp_path) as here:
        keeper = _keeper(here.node.pid)
        os.kill(keeper, signal.SIGSTOP)
        bake = await here.boss.bake(recipe(module("m")), node_id="alpha")

        def journaled() -> bool:
            row = rows_in(here.state).get("m")
            return row is not None and row.life.instance is not None

        await eventually(journaled, what="the instance in the journal")
        assert here.pids("m") == {"m": []}
        first = rows_in(here.state)["m"].life.instance
        await here.node.kill9()
        os.kill(keeper, signal.SIGCONT)
        here.clear()
        await here.node.start()
        assert isinstance(await asyncio.wait_for(bake.outcome(), 30), BakeSuccess), "the step was run again"
        await here.ready("m")
        row = rows_in(here.state)["m"]
        assert row.life.restarts == 0
        assert row.life.record.restarts == (), "what never ran is not held against it"
        assert first


@pytest.mark.parametrize("seed", range(2))
async def test_kill_minus_nine_at_random_while_components_come_up(tmp_path: Path, seed: int) -> None:
    """Each start appends a line; nobody may ever find another of its name at work."""
    chance = random.Random(seed)
    async with scene(tmp_path) as here:
        script = (
            f"mkdir {tmp_path}/lock-$BAKEMESH_COMPONENT || echo double >> {tmp_path}/doubles; "
            f'trap "rmdir {tmp_path}/lock-$BAKEMESH_COMPONENT; exit 0" TERM; while :; do sleep 0.02; done'
        )
        bakes = [await here.boss.bake(recipe(module(name, script)), node_id="alpha") for name in FIVE]
        for _ in range(3):
            await asyncio.sleep(chance.random() * 0.3)
            await here.node.kill9()
            await here.node.start()
        for bake in bakes:
            assert isinstance(await asyncio.wait_for(bake.outcome(), 60), BakeSuccess)
        here.clear()
        await here.ready(*FIVE)
        assert not (tmp_path / "doubles").exists()


async def test_a_follower_goes_on_after_the_builder_s_death(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with scene(tmp_path) as here:
        await here.up(module("m", f"echo first; {gate.wait}; echo last; exit 0", restart="never"))
        xml = recipe(attach("m", follow=True), attributes='data-interval-ms="0"')
        bake = await here.boss.bake(xml, node_id="alpha")
        async for chunk in bake.data():
            assert chunk.data == b"first\n"
            break
        await here.node.kill9()
        await here.node.start()
        gate.open()
        assert isinstance(await asyncio.wait_for(bake.outcome(), 30), BakeSuccess)
        chunks = [chunk async for chunk in bake.data()]
        again = b"".join(chunk.data for chunk in chunks if chunk.attempt == 2)
        assert again == b"first\nlast\n"


async def test_a_module_step_that_the_builder_s_death_cut_starts_nothing_twice(tmp_path: Path) -> None:
    gate, runs = Gate(tmp_path / "gate"), tmp_path / "runs"
    async with scene(tmp_path) as here:
        probe = f'<health command="/usr/bin/test -e {gate.path}" interval-ms="50"/>'
        step = module("once", f"echo x >> {runs}; exit 0", probe, restart="never")
        bake = await here.boss.bake(recipe(step, '<cli command="true"/>'), node_id="alpha")
        await eventually(lambda: runs.exists() and not instances("once", here.state), what="its end")
        await here.node.kill9()
        await here.node.start()
        outcome = await asyncio.wait_for(bake.outcome(), 30)
        assert "ended" in outcome.summary
        assert runs.read_text() == "x\n"


async def test_what_a_removed_component_left_in_a_crash_is_taken_away_but_never_from_under_a_shim(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as here:
        await here.node.kill9()
        components = here.state / "components"
        for name in ("left", "held"):
            (components / name / "data").mkdir(parents=True)
            (components / name / "data" / "old").write_text("of the one before")
        (components / "elsewhere").symlink_to(tmp_path)
        lock = os.open(components / "held", os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            await here.node.start()
            await here.up(module("left", f"[ ! -e old ] || exit 3; {SLEEP}"))
            await eventually(lambda: "a shim has it" in here.node.log.read_text(), what="a word about it")
        finally:
            os.close(lock)
        assert (components / "held" / "data" / "old").exists()
        assert here.node.log.exists(), "what a link leads to is nobody's"
        assert (await here.ready("left"))["left"]


# -- what stands between


async def test_a_component_whose_shim_is_killed_dies_and_is_started_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.up(module("m", "sleep 1000 & wait"))
        before = await here.ready("m")
        os.kill(shim_of(before["m"]), signal.SIGKILL)
        row = await here.seen.until("m", lambda row: row["state"] == "ready" and row["pid"] != before["m"])
        assert row["restarts"] == 1
        assert gone(before["m"])
        assert here.pids("m") == {"m": [row["pid"]]}
        assert "its shim was killed" in here.node.log.read_text()


async def test_shim_and_builder_killed_together_leave_nothing_doubled(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.up(module("m"), module("n"))
        before = await here.ready("m", "n")
        shim = shim_of(before["m"])
        await here.node.kill9()
        os.kill(shim, signal.SIGKILL)
        here.clear()
        await here.node.start()
        after = await here.ready("m", "n")
        assert after["m"] != before["m"]
        assert after["n"] == before["n"]


async def test_a_killed_keeper_takes_no_component_with_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.up(*(module(name) for name in FIVE))
        before = await here.ready(*FIVE)
        os.kill(_keeper(here.node.pid), signal.SIGKILL)
        await here.up(module("f"))
        assert (await here.ready(*FIVE)) == before
        async with here.net.connect("boss") as bus:
            for name in FIVE:
                assert (await order(bus, "Restart", name, issuer="boss")).accepted
        for name in FIVE:
            await here.seen.until(
                name, lambda row, old=before[name]: row["state"] == "ready" and row["pid"] != old
            )
        await here.ready(*FIVE)


async def test_a_bus_that_is_away_changes_nothing_about_them(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.up(module("m"), module("n"))
        before = await here.ready("m", "n")
        await here.net.nats.kill()
        os.kill(before["n"], signal.SIGKILL)
        await eventually(
            lambda: (found := instances("n", here.state)) and found != [before["n"]],
            what="a new one without a bus",
        )
        here.clear()
        await here.net.nats.start()
        after = await here.ready("m", "n")
        assert after["m"] == before["m"]


@pytest.mark.skipif(not stuck.POSSIBLE, reason="needs root and FUSE")
async def test_one_that_cannot_be_killed_keeps_neither_the_builder_nor_the_others_from_work(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as here:
        with stuck.dead_disk(tmp_path / "dead") as disk:
            await here.up(module("m", f"exec cat {disk}/x"), module("n"))
            before = await here.ready("m", "n")
            os.kill(shim_of(before["m"]), signal.SIGKILL)
            who = f"survives KILL: cat (pid {before['m']}, state D"
            row = await here.seen.until("m", "unhealthy")
            assert who in row["reason"]
            await here.node.kill9()
            here.clear()
            await here.node.start()
            assert await here.ready("n") == {"n": before["n"]}
            await here.seen.until("m", lambda row: who in row["reason"])
            async with here.net.connect("boss") as bus:
                assert (await order(bus, "Restart", "m", issuer="boss")).accepted
                row = await here.seen.until("m", "stopping")
                assert who in row["reason"]
                assert not gone(before["m"])
                assert (await order(bus, "Stop", "m", issuer="boss")).accepted
        row = await here.seen.until("m", "stopped")
        assert "survives" not in row["reason"]
        assert gone(before["m"])


# -- stopping


async def test_term_with_keep_lets_them_run_for_the_next_builder(tmp_path: Path) -> None:
    async with scene(tmp_path, "--on-stop", "keep") as here:
        await here.up(*(module(name) for name in FIVE))
        before = await here.ready(*FIVE)
        boot = here.seen.latest["alpha"].boot
        assert await here.node.stop() == 0
        assert here.pids(*FIVE) == {name: [pid] for name, pid in before.items()}
        here.clear()
        await here.node.start()
        assert await here.ready(*FIVE) == before
        assert here.seen.latest["alpha"].boot == boot


async def test_a_module_step_that_waits_when_its_builder_is_stopped_goes_on_with_the_next_one(
    tmp_path: Path,
) -> None:
    gate = Gate(tmp_path / "gate")
    async with scene(tmp_path, "--on-stop", "keep") as here:
        probe = f'<health command="/usr/bin/test -e {gate.path}" interval-ms="50"/>'
        bake = await here.boss.bake(recipe(module("m", SLEEP, probe)), node_id="alpha")
        row = await here.seen.until("m", lambda row: row["pid"])
        assert await here.node.stop() == 0
        gate.open()
        here.clear()
        await here.node.start()
        assert isinstance(await asyncio.wait_for(bake.outcome(), 30), BakeSuccess)
        assert (await here.ready("m"))["m"] == row["pid"]


async def test_term_with_stop_leaves_no_process_and_the_next_start_is_a_new_one(tmp_path: Path) -> None:
    async with scene(tmp_path, "--on-stop", "stop") as here:
        deaf = 'trap "" TERM; sleep 1000 & while :; do sleep 0.05; done'
        await here.up(*(module(name) for name in FIVE), module("deaf", deaf, shutdown_ms=200))
        await here.ready(*FIVE, "deaf")
        boot = here.seen.latest["alpha"].boot
        assert await here.node.stop() == 0
        assert everything_of(here.state) == []
        here.clear()
        await here.node.start()
        await eventually(lambda: "alpha" in here.seen.latest, what="its first word")
        assert here.seen.latest["alpha"].boot != boot
        row = await here.seen.until("a", "stopped")
        assert "earlier start of the node" in row["reason"] or "the node was stopped" in row["reason"]
        assert everything_of(here.state) == [], "an earlier start's components are not revived"
        async with here.net.supervisor("other") as other:
            bake = await other.bake(recipe(module("a")), node_id="alpha")
            assert isinstance(await bake.outcome(), BakeSuccess), "nobody owns what no start of the node runs"


async def test_a_stop_that_was_cut_short_is_finished_by_the_next_builder(tmp_path: Path) -> None:
    async with scene(tmp_path, "--on-stop", "stop") as here:
        deaf = 'trap "" TERM; while :; do sleep 0.05; done'
        await here.up(module("m"), module("deaf", deaf, shutdown_ms=8000))
        before = await here.ready("m", "deaf")
        assert here.node.process is not None
        here.node.process.send_signal(signal.SIGTERM)
        await eventually(lambda: gone(before["m"]), what="the end of the one that hears")
        await here.node.kill9()
        assert here.pids("deaf") == {"deaf": [before["deaf"]]}
        os.kill(before["deaf"], signal.SIGSTOP)  # it ends by the grace and KILL alone
        here.clear()
        await here.node.start()
        await eventually(lambda: not everything_of(here.state), what="the end of the deaf one")
        assert "earlier start" in (await here.seen.until("deaf", "stopped"))["reason"]


async def test_a_copied_state_folder_touches_nothing_of_the_first_one(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.up(module("m"))
        before = await here.ready("m")
        copy = tmp_path / "state-beta"
        await _copied(here.state, copy)
        (copy / "node.json").unlink()
        async with here.net.builder("beta"):
            await eventually(lambda: "beta" in here.seen.latest, what="the copy's first word")
            row = here.seen.row("m", "beta")
            assert row is not None
            assert (row["state"], row["pid"]) == ("stopped", 0)
            assert here.pids("m") == {"m": [before["m"]]}
            assert (here.seen.row("m") or {})["state"] == "ready"


# -- the disk


@pytest.mark.skipif(os.geteuid() != 0, reason="needs mount")
async def test_a_full_disk_under_a_component_is_a_reason_and_it_heals(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.up(module("m", max_restarts=50), module("n"))
        before = await here.ready("m", "n")
        async with here.net.connect("boss") as bus:
            assert (await order(bus, "Stop", "m", issuer="boss")).accepted
            await here.seen.until("m", "stopped")
            folder = here.state / "components" / "m"
            folder.rename(tmp_path / "aside")
            with small_disk(folder, "64k") as disk:
                ballast = fill_disk(disk)
                assert (await order(bus, "Start", "m", issuer="boss")).accepted
                row = await here.seen.until("m", lambda row: row["state"] == "backoff")
                assert "No space left" in row["reason"] or "no room" in row["reason"].lower(), row["reason"]
                assert (await here.ready("n"))["n"] == before["n"]
                ballast.unlink()
                with contextlib.suppress(FileNotFoundError):
                    (disk / "data").rmdir()
                await here.ready("m")
                assert (await order(bus, "Stop", "m", issuer="boss")).accepted
                await here.seen.until("m", "stopped")


def _keeper(builder: int) -> int:
    for pid in children(builder):
        if Path(f"/proc/{pid}/comm").read_text().strip() == "bakemesh-keeper":
            return pid
    raise AssertionError("the Builder has no keeper")


async def _copied(source: Path, target: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        "cp", "-r", str(source), str(target), stderr=asyncio.subprocess.DEVNULL
    )
    await process.wait()
    assert (target / "journal.db").exists()
