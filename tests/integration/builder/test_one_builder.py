"""One Builder a node: a second one, a copy of its folder, a claim that is taken away, a restart at once."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import stat
from pathlib import Path

from bakemesh.bus.kv import Bucket
from bakemesh.protocol import storage
from bakemesh.protocol.builder.messages import BakeSuccess
from support.builder import RunningBuilder
from support.house import House, running_house
from support.processes import alive
from support.waiting import eventually

GOOD = '<recipe name="good"><cli command="true"/></recipe>'


def another(house: House, name: str, *flags: str) -> RunningBuilder:
    """A further Builder for the same node, on the folder of that name."""
    log = house.folder / f"{name}.log"
    return RunningBuilder(house.nats.url, "alpha", house.folder / name, log, (*house.node.flags, *flags))


async def bakes(house: House) -> None:
    bake = await house.bake(GOOD)
    assert isinstance(await bake.outcome(), BakeSuccess)


def copy(house: House, name: str) -> RunningBuilder:
    """A copy of the state folder, as somebody makes it with `cp -a`."""
    shutil.copytree(house.node.state, house.folder / name)
    return another(house, name)


async def test_a_second_builder_ends_with_6_and_says_why(tmp_path: Path) -> None:
    async with running_house(tmp_path) as house:
        same = another(house, "state-alpha")
        await same.launch()
        assert await same.ended() == 6
        assert f"(pid {house.node.pid}) runs on it already" in same.log.read_text()
        other = another(house, "other")
        await other.launch()
        assert await other.ended() == 6
        assert "node alpha has a Builder already" in other.log.read_text()
        assert "--node NAME=ID" in other.log.read_text()
        assert "Traceback" not in other.log.read_text()
        await bakes(house)

        # Killed, it is back at once: the claim of the dead one is this folder's own.
        await house.node.kill9()
        await house.node.start()
        await bakes(house)

        # And what is in its folder is nobody else's to read.
        state = house.node.state
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        kept = [*state.glob("journal*"), *state.glob("bakes*"), *state.glob("*.lock")]
        assert len(kept) >= 4
        for path in kept:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


async def test_a_folder_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    state = tmp_path / "state-alpha"
    state.mkdir(mode=0o755)
    state.chmod(0o755)
    (state / "journal.db").touch(mode=0o644)
    (state / "journal.db").chmod(0o644)
    async with running_house(tmp_path) as house:
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert stat.S_IMODE((state / "journal.db").stat().st_mode) == 0o600
        assert await house.node.stop() == 0
        # A folder that holds other things too is not ours to close.
        (state / "holiday.jpg").touch()
        state.chmod(0o755)
        await house.node.start()
        assert stat.S_IMODE(state.stat().st_mode) == 0o755
        assert "others may look into it" in house.log
        assert stat.S_IMODE((state / "journal.db").stat().st_mode) == 0o600


async def test_a_copy_of_the_folder_is_another_builder(tmp_path: Path) -> None:
    """It neither takes the node nor kills the steps of the one that it was copied from."""
    async with running_house(tmp_path) as house:
        gate = house.gate()
        slow = await house.bake(f'<recipe name="slow">{house.held_at(gate, "slow")}</recipe>')
        await house.reached(slow, 0)
        steps = alive(gate.path.name)
        assert steps
        clone = copy(house, "copy")
        await clone.launch()
        await eventually(lambda: "waiting for the claim" in clone.log.read_text(), what="the copy's start")
        assert await clone.stop() == 0, "it can be stopped while it waits"
        await clone.launch()
        assert await clone.ended() == 6
        assert "node alpha has a Builder already" in clone.log.read_text().splitlines()[-1]
        assert alive(gate.path.name) == steps
        gate.open()
        assert isinstance(await slow.outcome(), BakeSuccess)
        await bakes(house)


async def test_two_that_cannot_be_told_apart_do_not_take_turns(tmp_path: Path) -> None:
    """A machine cloned with its disk: the last one that started bakes, the other one ends."""
    async with running_house(tmp_path) as house:
        twin = copy(house, "twin")
        with contextlib.closing(sqlite3.connect(twin.state / "journal.db")) as db:
            place = (twin.state / "journal.db").stat().st_ino
            assert db.execute("UPDATE meta SET value=? WHERE key='place'", (str(place),)).rowcount == 1
            db.commit()
        await twin.start()
        assert await house.node.ended() == 6
        assert "was taken by another Builder" in house.log
        await house.node.launch()
        assert await house.node.ended() == 6
        await bakes(house)
        assert await twin.stop() == 0
        await house.node.start()  # for the house's own end


async def test_a_lost_claim_ends_the_builder_and_one_out_of_reach_does_not(tmp_path: Path) -> None:
    async with running_house(tmp_path) as house:
        await house.nats.kill()
        await eventually(lambda: "alpha.claim uncertain" in house.log, what="a claim that cannot be renewed")
        await house.nats.start()
        await eventually(lambda: house.boss.bus.connected, what="the link")
        await bakes(house)

        again = await house.bake('<recipe name="again"><cli retryable="yes" command="sleep 600"/></recipe>')
        await eventually(lambda: again.latest and again.latest.kind == "step", what="the step")
        async with house.net.connect("builder-alpha") as bus:
            bucket = Bucket(bus, storage.nodes_bucket(bus.mesh))
            thief = json.dumps({"owner": "thief", "holder": "builder@alpha, elsewhere"}).encode()
            await bucket.put(storage.claim_key("alpha"), thief, ttl_s=30)
            assert await house.node.ended() == 6
            await bucket.delete(storage.claim_key("alpha"))
        last = house.log.splitlines()[-1]
        assert "was taken by another Builder (builder@alpha, elsewhere)" in last
        # It ended as it does at a stop: what may run again is left to the next start.
        await house.node.start()
        await eventually(lambda: again.latest and again.latest.attempt == 2, what="the second attempt")
        assert (await again.cancel()).accepted


async def test_a_folder_is_one_meshs_for_good(tmp_path: Path) -> None:
    async with running_house(tmp_path) as house:
        assert await house.node.stop() == 0
        elsewhere = another(house, "state-alpha", "--mesh", "othermesh")
        await elsewhere.launch()
        assert await elsewhere.ended() == 2
        last = elsewhere.log.read_text().splitlines()[-1]
        assert "belongs to the mesh 'psyclone', not 'othermesh'" in last
        assert "--mesh psyclone" in last
        await house.node.start()
        await bakes(house)
