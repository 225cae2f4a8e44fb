"""`drain` and `down` as an operator uses them."""

from __future__ import annotations

from pathlib import Path

from bakemesh.protocol.builder.messages import BakeCancelled, BakeSuccess
from support.commandline import bakemesh, running_up
from support.following import Commands
from support.house import Gate, said
from support.mesh import mesh
from support.modules import module, recipe


def held(gate: Gate) -> str:
    return f'<recipe name="held"><cli shell="yes" command="{gate.wait}"/></recipe>'


async def test_drain_is_followed_until_nothing_runs_and_resume_takes_it_back(tmp_path: Path) -> None:
    async with mesh(tmp_path, "--operator", "ops") as net, net.supervisor("boss") as boss:
        cli, gate = Commands(net, tmp_path), Gate(tmp_path / "gate")
        assert isinstance(await (await boss.bake(recipe(module("one")))).outcome(), BakeSuccess)
        bake = await boss.bake(held(gate))
        await said(bake, lambda status: status.kind == "step")
        async with cli.following("drain", "alpha", party="ops") as drain:
            assert (await drain.until("result"))["summary"] == "draining: 1 bake to end first"
            seen = await drain.until("progress", bakes=1)
            assert seen["components"] == ["one"]
            refused = await cli.run("bake", "-", "--node", "alpha", party="boss", stdin=held(gate).encode())
            assert refused.returncode == 1
            assert b"draining" in refused.stderr
            gate.open()
            await drain.until("end", state="drained")
            assert await drain.ended() == 0
        assert (await cli.json("nodes", party="boss"))[0]["state"] == "drained"
        again = await cli.run("drain", "--resume", "alpha", party="ops")
        assert (again.returncode, again.stdout) == (0, b"Resume alpha: accepted: takes recipes\n")
        assert isinstance(await (await boss.bake(held(gate))).outcome(), BakeSuccess)


async def test_a_time_for_the_bakes_and_a_follower_that_goes_away(tmp_path: Path) -> None:
    async with mesh(tmp_path, "--operator", "ops") as net, net.supervisor("boss") as boss:
        cli, gate = Commands(net, tmp_path), Gate(tmp_path / "gate")
        bake = await boss.bake(held(gate))
        await said(bake, lambda status: status.kind == "step")
        async with cli.following("drain", "alpha", party="ops") as drain:
            await drain.until("progress", bakes=1)
            assert await drain.interrupt() == 3
            assert "goes on" in drain.said()
        done = await cli.run("drain", "alpha", "--timeout", "0", party="ops")
        assert (done.returncode, done.stdout) == (0, b"node alpha is drained\n"), done.stderr
        assert isinstance(await bake.outcome(), BakeCancelled)


async def test_who_may_not_and_what_is_wrong(tmp_path: Path) -> None:
    async with mesh(tmp_path, "--operator", "ops") as net:
        cli = Commands(net, tmp_path)
        denied = await cli.run("drain", "alpha", party="boss")
        assert denied.returncode == 5, denied.stderr
        unknown = await cli.run("drain", "nowhere", party="ops")
        assert unknown.returncode == 5
        assert b"known nodes: alpha" in unknown.stderr
        assert (await cli.run("drain", "alpha", "--resume", "--timeout", "1", party="ops")).returncode == 2
        assert (await cli.run("drain", "alpha", "--timeout", "-1", party="ops")).returncode == 2
        nobody = await cli.run("down", party="ops")
        assert nobody.returncode == 2
        assert b"name the NODE" in nobody.stderr


async def test_down_is_followed_until_the_builder_has_ended(tmp_path: Path) -> None:
    async with (
        mesh(tmp_path, "--operator", "ops", nodes=("alpha", "beta")) as net,
        net.supervisor("boss") as boss,
    ):
        cli = Commands(net, tmp_path)
        # It ends at once: what the node was at its end is said all the same.
        assert isinstance(await (await boss.bake(recipe(module("one")), node="beta")).outcome(), BakeSuccess)
        done = await cli.run("down", "beta", party="ops")
        assert (done.returncode, done.stdout) == (0, b"node beta is down\n"), done.stderr
        assert await net.nodes["beta"].ended() == 7
        alpha, beta = await cli.json("nodes", party="boss")
        assert (alpha["state"], beta["alive"]) == ("ready", False)


def test_down_ends_up_with_its_own_server(tmp_path: Path) -> None:
    with running_up(tmp_path) as up:
        done = bakemesh("down", home=tmp_path)
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert done.stdout.startswith(b"node alpha is down")
        assert up.process.wait(30) == 0, up.said()
